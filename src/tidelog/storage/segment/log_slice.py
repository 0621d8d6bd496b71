"""Byte ranges of segment files, as reads hand them out."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.storage.files import OpenFile
from tidelog.world.files import Files


class FileSlice:
    """A range of an open file, ready for `os.sendfile(socket, slice.fd, slice.position, ...)`.

    The file stays open, and its bytes readable, for as long as the slice lives, even when the
    segment is deleted meanwhile. Batches in it never change.
    """

    __slots__ = ("file", "position", "size_bytes")

    def __init__(self, file: OpenFile, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes

    @property
    def fd(self) -> int:
        return self.file.fd

    def read(self, files: Files) -> bytes:
        """Copies the bytes out, for connections that cannot use sendfile (TLS) and for replay."""
        parts = []
        position = self.position
        left = self.size_bytes
        while left:
            part = files.pread(self.file.fd, left, position)
            if not part:
                raise OSError(f"{self.file.path} ends at {position}, {left} bytes too early")
            parts.append(part)
            position += len(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class LogSlice:
    """Whole batches read from one segment.

    `file_slice` is None when there is nothing to read at `offset` below the bound (then
    `size_bytes` is 0 and `next_offset == offset`). Otherwise the first batch holds `offset` (it
    may start before it), and `next_offset` is the offset to read next.
    """

    __slots__ = ("file_slice", "next_offset", "offset", "size_bytes")

    def __init__(self, offset: int, next_offset: int, file_slice: FileSlice | None) -> None:
        self.offset = offset
        self.next_offset = next_offset
        self.file_slice = file_slice
        self.size_bytes = 0 if file_slice is None else file_slice.size_bytes


class TimestampOffset(NamedTuple):
    """A record's timestamp and offset, with the leader epoch of its batch (-1 when unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int = -1
