"""Room on a disk that is kept for what has to be written when nothing else can be."""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.storage.files import NO_SPACE
from tidelog.world.files import Files

_BLOCK_BYTES = 4096
# A disk with less room than this many times the reserve is left to those that need it now.
_ROOM_FACTOR = 4


class SpaceReserve:
    """A file of zeros that gets shorter when its room is needed; `fill` makes it whole again.

    Loop thread. What is given back is free for anybody, so who needs it writes at once, and asks
    for as little as will do.
    """

    def __init__(self, files: Files, path: Path, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._files = files
        self._path = path
        self._held_bytes: int | None = None  # None until the file of an earlier start is looked at

    @property
    def held_bytes(self) -> int:
        """How much there is. Raises OSError."""
        if self._held_bytes is None:
            try:
                self._held_bytes = self._files.stat(self._path).st_size
            except FileNotFoundError:
                self._held_bytes = 0
        return self._held_bytes

    def fill(self) -> None:
        """To be called from time to time: takes what is missing, if the disk has plenty of room.

        Raises OSError, but not for want of room.
        """
        if self.held_bytes >= self.size_bytes:
            return
        _, usable_bytes = self._files.disk_usage(self._path.parent)
        if usable_bytes < _ROOM_FACTOR * self.size_bytes:
            return
        try:
            fd = self._files.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            try:
                self._files.fallocate(fd, 0, self.size_bytes)
            finally:
                self._files.close(fd)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
        else:
            self._held_bytes = self.size_bytes

    def give_back(self, size_bytes: int, *, kept_bytes: int = 0) -> bool:
        """Frees so much, in whole blocks; False when no more than `kept_bytes` are left.

        Raises OSError.
        """
        if self.held_bytes <= kept_bytes:
            return False
        freed_bytes = -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
        left_bytes = max(self.held_bytes - freed_bytes, kept_bytes)
        fd = self._files.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._files.ftruncate(fd, left_bytes)
        finally:
            self._files.close(fd)
        self._held_bytes = left_bytes
        return True
