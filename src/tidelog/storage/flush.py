"""One flush of a log: files to sync, gathered on the loop thread and synced on another."""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.storage.files import OpenFile
from tidelog.world.files import Files


class Flush:
    """What to sync so that everything below `offset` is on disk.

    Made by `LocalLog.prepare_flush`. It holds the files open, so the log may go on meanwhile.
    """

    __slots__ = (
        "_directory",
        "_files",
        "_open",
        "_paths",
        "epochs_version",
        "offset",
        "truncations",
    )

    def __init__(
        self, files: Files, directory: Path, offset: int, truncations: int, epochs_version: int
    ) -> None:
        self.offset = offset
        self.truncations = truncations
        self.epochs_version = epochs_version
        self._files = files
        self._directory = directory
        self._open: list[OpenFile] = []
        self._paths: list[Path] = []

    @property
    def is_needed(self) -> bool:
        return bool(self._open or self._paths)

    def add_file(self, file: OpenFile) -> None:
        self._open.append(file)

    def add_path(self, path: Path) -> None:
        self._paths.append(path)

    def run(self) -> None:
        """Syncs; callable on any thread. Raises OSError, after which nothing may be taken as
        synced."""
        if not self.is_needed:
            return
        for file in self._open:
            self._files.fdatasync(file.fd)
        for path in self._paths:
            try:
                fd = self._files.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # deleted since, by retention or truncation
            try:
                self._files.fdatasync(fd)
            finally:
                self._files.close(fd)
        self._files.sync_directory(self._directory)
