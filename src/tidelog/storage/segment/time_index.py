"""The sparse time index of a segment: up to which timestamp the log has come at an offset.

Kafka's format: 12-byte entries (timestamp 64 bits, relative offset 32 bits), big-endian, ascending
in both. An entry (t, o) says that no record up to o has a timestamp above t, and that the batch
which ends at o has one of exactly t.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tidelog.storage.segment.index_file import IndexFile
from tidelog.world.files import Files

ENTRY_SIZE_BYTES = 12
_ENTRY = struct.Struct(">qI")
_TIMESTAMP = struct.Struct(">q")
_RELATIVE_OFFSET = struct.Struct(">I")


class TimeIndex:
    __slots__ = ("_file", "base_offset")

    def __init__(self, files: Files, path: Path, base_offset: int) -> None:
        self.base_offset = base_offset
        self._file = IndexFile(files, path, ENTRY_SIZE_BYTES)

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def count(self) -> int:
        return self._file.count

    def entry(self, slot: int) -> tuple[int, int]:
        """(timestamp, offset) of a slot; (-1, base offset) for slot -1."""
        if slot < 0:
            return -1, self.base_offset
        timestamp, relative = _ENTRY.unpack_from(*self._file.locate(slot))
        return timestamp, self.base_offset + relative

    @property
    def last(self) -> tuple[int, int]:
        return self.entry(self._file.count - 1)

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Adds an entry unless the timestamp is no news."""
        if timestamp_ms > self.last[0]:
            self._file.append(_ENTRY.pack(timestamp_ms, offset - self.base_offset))

    def lookup(self, timestamp_ms: int) -> tuple[int, int]:
        """The last entry at or below a timestamp: later records start at or after its offset."""
        return self.entry(self._file.floor(_TIMESTAMP, 0, timestamp_ms))

    def truncate_to(self, offset: int) -> None:
        """Drops the entries of `offset` and above."""
        last_kept = self._file.floor(_RELATIVE_OFFSET, 8, offset - self.base_offset - 1)
        self._file.truncate(last_kept + 1)

    def reset(self) -> None:
        self._file.truncate(0)

    def is_ascending(self) -> bool:
        content = self._file.content()
        previous = (-1, -1)
        for entry in _ENTRY.iter_unpack(content):
            if entry[0] <= previous[0] or entry[1] <= previous[1]:
                return False
            previous = entry
        return True

    def write_out(self) -> None:
        self._file.write_out()

    def release(self) -> None:
        self._file.release()
