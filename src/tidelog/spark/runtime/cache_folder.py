"""A folder of the user's where small files that Spark needs are written once."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def cache_folder(environment: Mapping[str, str]) -> Path:
    """`$XDG_CACHE_HOME/tidelog/spark`; in the temporary folder if that cannot be written."""
    try:
        base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        wanted = Path(base, "tidelog", "spark")
        wanted.mkdir(parents=True, exist_ok=True)
        if os.access(wanted, os.W_OK | os.X_OK):
            return wanted
    except (OSError, RuntimeError):
        # RuntimeError is Python's for a user without a home.
        pass
    # Another user of the machine could have put a folder of a well-known name there.
    fallback = Path(tempfile.gettempdir(), f"tidelog-spark-{os.getuid()}")
    fallback.mkdir(mode=0o700, exist_ok=True)
    if fallback.stat().st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix="tidelog-spark-"))
    return fallback


@contextmanager
def written_once(target: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `target` in one step when the block ends.

    Any number of processes may do so at the same time: the first one's folder stays.
    """
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield made
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
