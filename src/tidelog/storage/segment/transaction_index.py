"""The aborted transactions of a segment, for readers that want only committed records.

Kafka's format: 34-byte entries (version 0, producer id, first offset, last offset, last stable
offset), big-endian, in the order of their abort markers. Most segments have none, and no file.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from tidelog.storage.files import CorruptFileError, read_file, write_fully
from tidelog.world.files import Files

ENTRY_SIZE_BYTES = 34
_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """Records of `producer_id` in [first_offset, last_offset] were rolled back.

    `last_stable_offset` is what it became when this abort was written: readers below it need no
    later entry.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    __slots__ = ("_entries", "_files", "_stored", "base_offset", "path")

    def __init__(self, files: Files, path: Path, base_offset: int, *, exists: bool) -> None:
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._entries: list[AbortedTransaction] | None = None if exists else []
        self._stored = 0  # how many of the entries the file has

    @property
    def entries(self) -> list[AbortedTransaction]:
        """All entries, read on first use. Raises CorruptFileError when one cannot be true."""
        entries = self._entries
        if entries is None:
            entries = self._entries = self._load()
        return entries

    def check(self) -> None:
        """Raises CorruptFileError unless every entry is plausible."""
        len(self.entries)

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds an entry. What a full disk keeps out of the file waits for the next `write_out`."""
        self.entries.append(aborted)
        try:
            self.write_out()
        except OSError:
            pass

    def write_out(self) -> None:
        """What was never read has nothing new, and may be damaged: loading finds that out."""
        entries = self._entries
        if entries is None or self._stored == len(entries):
            return
        content = b"".join(_ENTRY.pack(_VERSION, *aborted) for aborted in entries[self._stored :])
        fd = self._files.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            write_fully(self._files, fd, content, self._stored * ENTRY_SIZE_BYTES)
        finally:
            self._files.close(fd)
        self._stored = len(entries)

    def collect(
        self, start_offset: int, upper_offset: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """Entries that overlap the range, and whether later segments can hold no more of them."""
        found = []
        for aborted in self.entries:
            if aborted.last_offset >= start_offset and aborted.first_offset < upper_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drops transactions that end at `offset` or above."""
        entries = self.entries
        kept = [aborted for aborted in entries if aborted.last_offset < offset]
        if len(kept) < len(entries):
            self._cut(len(kept))
            self._entries = kept
            self._stored = min(self._stored, len(kept))

    def reset(self) -> None:
        if self._entries is None or self._entries:
            self._cut(0)
        self._entries = []
        self._stored = 0

    @property
    def exists(self) -> bool:
        """Whether there is a file (it is made by the first entry)."""
        return self._entries is None or bool(self._entries)

    def _cut(self, count: int) -> None:
        fd = self._files.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            self._files.ftruncate(fd, count * ENTRY_SIZE_BYTES)
        finally:
            self._files.close(fd)

    def _load(self) -> list[AbortedTransaction]:
        try:
            content = read_file(self._files, self.path)
        except FileNotFoundError:
            return []
        entries: list[AbortedTransaction] = []
        previous_last_offset = self.base_offset - 1
        if len(content) % ENTRY_SIZE_BYTES:
            raise CorruptFileError(self.path, f"{len(content)} bytes are no whole entries")
        for version, *fields in _ENTRY.iter_unpack(content):
            aborted = AbortedTransaction(*fields)
            if (
                version != _VERSION
                or aborted.last_offset <= previous_last_offset
                # The last is the marker's own. Zeros, which a power cut leaves, do not pass.
                or aborted.first_offset >= aborted.last_offset
            ):
                raise CorruptFileError(self.path, f"entry {len(entries)} is not a transaction")
            previous_last_offset = aborted.last_offset
            entries.append(aborted)
        self._stored = len(entries)
        return entries
