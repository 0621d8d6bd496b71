"""Two pipelines with one checkpoint would take each other's progress for their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tidelog.spark.errors import SparkError
from tidelog.spark.pipeline.run.run_lock import Held, holding

_NAME = "tidelog.lock"


@contextmanager
def checkpoint_claimed(checkpoint: str) -> Iterator[None]:
    """Be the one process that uses a checkpoint on this machine; SparkError if another does.

    Addresses of other file systems are not locked.
    """
    folder = local_folder(checkpoint)
    with ExitStack() as stack:
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(holding(folder / _NAME))
            except Held as held:
                raise SparkError(
                    f"the checkpoint {folder} is used{held.by} already: give each pipeline its own"
                ) from None
            except OSError:
                pass  # Spark says what is wrong with it, or has a file system of its own there
        yield


def local_folder(checkpoint: str) -> Path | None:
    if checkpoint.startswith("file:"):
        return Path("/" + checkpoint.removeprefix("file:").lstrip("/"))
    return Path(checkpoint) if checkpoint.startswith("/") else None
