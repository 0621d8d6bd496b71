"""The file that says that the last shutdown was clean, under Kafka's name and in its format."""

from __future__ import annotations

import json
from pathlib import Path

from tidelog.storage.files import read_file, replace_file
from tidelog.world.files import Files

FILE_NAME = ".kafka_cleanshutdown"


def write_clean_shutdown(files: Files, directory: Path, broker_epoch: int = -1) -> None:
    """Says, durably, that everything in this log directory is on disk and checkpointed."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch})
    replace_file(files, directory / FILE_NAME, content.encode())


def take_clean_shutdown(files: Files, directory: Path) -> bool:
    """Whether the last shutdown was clean; the file is gone, durably, when it returns."""
    path = directory / FILE_NAME
    if not files.exists(path):
        return False
    try:
        json.loads(read_file(files, path))
        clean = True
    except ValueError:
        clean = False
    files.unlink(path)
    files.sync_directory(directory)
    return clean
