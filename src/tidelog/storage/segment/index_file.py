"""A file of fixed-size entries that only grows at its end: what the sparse indexes are made of.

Kafka preallocates and maps the indexes of every active segment. With thousands of partitions that
is slow to start and costs address space and descriptors for partitions nobody touches. Here the
newest entries wait in memory (at most one `SPILL_BYTES` block per index), a full block is written
behind the others with one `pwrite`, and the written part is mapped, read-only, by the first lookup
that needs it. Opening an index therefore costs nothing, no descriptor stays open, and the file
always has exactly the length of its entries, as Kafka's has after a clean close. What memory held
at a crash is rebuilt from the segment, which is the truth.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from tidelog.storage.files import write_fully
from tidelog.world.files import Files

SPILL_BYTES = 4096


class IndexFile:
    """Entries by slot number, oldest first."""

    __slots__ = ("_entry_size_bytes", "_files", "_mapping", "_stored", "_tail", "path")

    def __init__(self, files: Files, path: Path, entry_size_bytes: int) -> None:
        self.path = path
        self._files = files
        self._entry_size_bytes = entry_size_bytes
        self._stored = -1  # entries in the file; -1 until someone asks
        self._tail = bytearray()  # entries that are not in the file yet
        self._mapping: mmap.mmap | bytes | None = None

    @property
    def count(self) -> int:
        stored = self._stored
        if stored < 0:
            stored = self._load_stored()
        return stored + len(self._tail) // self._entry_size_bytes

    def append(self, entry: bytes) -> None:
        if self._stored < 0:
            self._load_stored()
        self._tail += entry
        if len(self._tail) >= SPILL_BYTES:
            try:
                self.write_out()
            except OSError:
                # The entries stay in memory; a disk that stays full fails the roll instead.
                pass

    def locate(self, slot: int) -> tuple[mmap.mmap | bytes | bytearray, int]:
        """The buffer that holds a slot, and where in it: for `Struct.unpack_from`."""
        if slot >= self._stored:
            return self._tail, (slot - self._stored) * self._entry_size_bytes
        return self._map(), slot * self._entry_size_bytes

    def floor(self, key: struct.Struct, key_at: int, target: int) -> int:
        """The last slot whose key (at `key_at` in its entry) is <= target, or -1."""
        count = self.count
        if not count:
            return -1
        size = self._entry_size_bytes
        unpack = key.unpack_from
        stored = self._stored
        buffer: mmap.mmap | bytes | bytearray = self._tail
        base = stored
        low, high = 0, len(buffer) // size
        if stored and (not buffer or unpack(buffer, key_at)[0] > target):
            buffer = self._map()
            base = 0
            high = stored
        while low < high:
            middle = (low + high) >> 1
            if unpack(buffer, middle * size + key_at)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return base + low - 1

    def truncate(self, count: int) -> None:
        """Keeps the first `count` entries."""
        if count >= self.count:
            return
        if count >= self._stored:
            del self._tail[(count - self._stored) * self._entry_size_bytes :]
            return
        self._tail.clear()
        self._mapping = None  # a mapping past the end of its file is a bus error waiting
        fd = self._files.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            self._files.ftruncate(fd, count * self._entry_size_bytes)
        finally:
            self._files.close(fd)
        self._stored = count

    def write_out(self) -> None:
        """Writes what waits in memory; creates the file even when there is nothing to write."""
        stored = self._stored if self._stored >= 0 else self._load_stored()
        fd = self._files.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            # A copy: an error that somebody keeps would keep a view of it, and the tail must grow.
            write_fully(self._files, fd, bytes(self._tail), stored * self._entry_size_bytes)
        finally:
            self._files.close(fd)
        self._stored = stored + len(self._tail) // self._entry_size_bytes
        self._tail = bytearray()

    def release(self) -> None:
        """Drops the mapping; the next lookup maps again."""
        self._mapping = None

    def content(self) -> bytes:
        """All entries, for checks."""
        if not self.count:
            return b""
        stored = bytes(self._map()) if self._stored else b""
        return stored[: self._stored * self._entry_size_bytes] + bytes(self._tail)

    def _load_stored(self) -> int:
        try:
            self._stored = self._files.stat(self.path).st_size // self._entry_size_bytes
        except FileNotFoundError:
            self._stored = 0
        return self._stored

    def _map(self) -> mmap.mmap | bytes:
        size = self._stored * self._entry_size_bytes
        mapping = self._mapping
        if mapping is None or len(mapping) < size:
            fd = self._files.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                mapping = self._mapping = self._files.map(fd, size)
            finally:
                self._files.close(fd)
        return mapping
