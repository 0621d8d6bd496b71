"""The file `meta.properties`: whose log directory this is, in Kafka's format (version 1)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tidelog.protocol.uuids import format_uuid, parse_uuid
from tidelog.storage.files import CorruptFileError, read_file, replace_file
from tidelog.world.files import Files

FILE_NAME = "meta.properties"
JOINED_CLUSTER = "joined.properties"
"""Beside it, in a node that was sent to a cluster by `tidelog up --join`: where that is."""
_WHAT_TO_DO = (
    "Write the right values into it (version=1, cluster.id, node.id and directory.id, one a line)"
)


class MetaProperties(NamedTuple):
    """`directory_id` is None in a directory that an older Kafka made."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None


def write_meta_properties(files: Files, directory: Path, meta: MetaProperties) -> None:
    """Replaces the file; durable when it returns."""
    lines = ["version=1", f"cluster.id={meta.cluster_id}", f"node.id={meta.node_id}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={format_uuid(meta.directory_id)}")
    replace_file(files, directory / FILE_NAME, ("\n".join(lines) + "\n").encode())


def read_meta_properties(files: Files, directory: Path) -> MetaProperties | None:
    """The content of the file, None in a new directory. Raises CorruptFileError."""
    path = directory / FILE_NAME
    if not files.exists(path):
        return None
    properties = _parse_properties(read_file(files, path).decode("utf-8", "replace"))
    node_name = "broker.id" if properties.get("version", "0") == "0" else "node.id"
    try:
        if properties.get("version", "0") not in ("0", "1"):
            raise ValueError(f"version {properties['version']} is not known")
        directory_id = properties.get("directory.id")
        return MetaProperties(
            properties["cluster.id"],
            int(properties[node_name]),
            None if directory_id is None else parse_uuid(directory_id),
        )
    except KeyError as error:
        raise CorruptFileError(path, f"{error.args[0]} is missing. {_WHAT_TO_DO}") from error
    except ValueError as error:
        raise CorruptFileError(path, f"{error}. {_WHAT_TO_DO}") from error


def _parse_properties(text: str) -> dict[str, str]:
    properties = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            name, _, value = line.partition("=")
            properties[name.strip()] = value.strip()
    return properties
