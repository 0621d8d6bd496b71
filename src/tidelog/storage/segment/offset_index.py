"""The sparse offset index of a segment: where in the .log file a batch starts.

Kafka's format: 8-byte entries (relative offset, position), both 32 bits, big-endian, ascending. An
entry names the last offset of the batch that starts at its position.
"""

from __future__ import annotations

import struct
import sys
from array import array
from pathlib import Path

from tidelog.storage.segment.index_file import IndexFile
from tidelog.world.files import Files

ENTRY_SIZE_BYTES = 8
_ENTRY = struct.Struct(">II")
_WORD = struct.Struct(">I")


class OffsetIndex:
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

    def append(self, offset: int, position: int) -> None:
        self._file.append(_ENTRY.pack(offset - self.base_offset, position))

    def entry(self, slot: int) -> tuple[int, int]:
        """(offset, position) of a slot; (base offset, 0), the segment's start, for slot -1."""
        if slot < 0:
            return self.base_offset, 0
        relative, position = _ENTRY.unpack_from(*self._file.locate(slot))
        return self.base_offset + relative, position

    def lookup(self, offset: int) -> tuple[int, int]:
        """The last entry at or below `offset`: a scan for the offset starts at its position."""
        return self.entry(self._file.floor(_WORD, 0, offset - self.base_offset))

    def lookup_position(self, position: int) -> tuple[int, int]:
        """The last entry whose batch starts at or below `position`."""
        return self.entry(self._file.floor(_WORD, 4, position))

    def truncate_to(self, offset: int) -> None:
        """Drops the entries of `offset` and above."""
        self._file.truncate(self._file.floor(_WORD, 0, offset - self.base_offset - 1) + 1)

    def truncate_to_position(self, position: int) -> None:
        """Drops the entries of batches that start at `position` or above."""
        self._file.truncate(self._file.floor(_WORD, 4, position - 1) + 1)

    def reset(self) -> None:
        self._file.truncate(0)

    def is_ascending(self) -> bool:
        """Whether every entry is above the one before it, as a search needs it."""
        words = array("I", self._file.content())
        if sys.byteorder == "little":
            words.byteswap()
        for column in (words[0::2], words[1::2]):
            if any(map(int.__ge__, column, column[1:])):
                return False
        return True

    def write_out(self) -> None:
        self._file.write_out()

    def release(self) -> None:
        self._file.release()
