"""The file `offset-gaps`, which says that offsets may be missing above a log's recovery point.

A copy of a compacted log leaps over what was compacted away. For a recovery that looks like records
that were lost, and it would cut the log there. A log with a journal gets them back from there; one
that is left to the page cache has only its segments, and this file beside them. It is there from
before the first gap is written until the recovery point has passed the last one.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.world.files import Files

FILE_NAME = "offset-gaps"
NO_GAP = -1


class OffsetGaps:
    """Where in a log offsets are missing. Loop thread; the methods raise OSError."""

    def __init__(self, files: Files, directory: Path, end_offset: int, *, noted: bool) -> None:
        self._files = files
        self._path = directory / FILE_NAME
        self._noted = noted
        self.end_offset = end_offset if noted else NO_GAP
        """The first offset after the last gap, as far as that is known."""

    def found(self, end_offset: int, *, journaled: bool) -> None:
        """A gap is about to be appended, which reaches to `end_offset`."""
        if not journaled and not self._noted:
            flags = os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC
            self._files.close(self._files.open(self._path, flags))
            self._noted = True
        self.end_offset = end_offset

    def forget_below(self, recovery_point: int) -> None:
        """The recovery point is written down, so nothing below it will be looked at again."""
        if self._noted and self.end_offset < recovery_point:
            self._noted = False
            try:
                self._files.unlink(self._path)
            except FileNotFoundError:
                pass  # with the directory of a log that was deleted
