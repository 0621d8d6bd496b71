"""Which query a checkpoint belongs to, for the driver, whom Spark does not tell."""

import json
from pathlib import Path
from urllib.parse import urlsplit


def checkpoint_query_id(location: str) -> str | None:
    """The id of the query; None if the checkpoint is not on this machine."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return None
    try:
        metadata = json.loads((Path(parts.path) / "metadata").read_text())
    except (OSError, ValueError):
        return None
    query_id = metadata.get("id") if isinstance(metadata, dict) else None
    return query_id if isinstance(query_id, str) else None
