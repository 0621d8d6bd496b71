"""Files and directories as a machine holds them: what its page cache has, and what its disk has.

Reads see the page cache. A sync brings the disk up to it; until then a power cut may leave any of
what `tidelog.testing.faults` describes:

- what was synced is there;
- of the writes since, each sector is there or not, and the file has its old or its new length, or
  one between;
- of the changes of a directory since its sync, the first few are there, in order.

A file keeps the cache whole, and of the disk only the sectors that differ: `FileInode.disk_sectors`
has what the disk holds of each sector that was written since the last sync. Sectors behind the
file's length on disk need no entry; the disk has nothing of them. So a sync costs nothing, and a
write costs a copy of what it overwrites.

A sync that fails may do what kernels do ("fsyncgate"): the sectors that could not be written count
as clean. The next sync passes over them and succeeds, while the disk has never seen them.
"""

from __future__ import annotations

import random

SECTOR_BYTES = 512


class FileInode:
    """A file.

    Every sector below `disk_size_bytes` that `disk_sectors` does not list is the same on the disk
    and in `content`. `lost_sectors` are those of `disk_sectors` that the kernel takes for clean.
    """

    __slots__ = (
        "content",
        "disk_sectors",
        "disk_size_bytes",
        "is_linked",
        "lock_fd",
        "lost_sectors",
        "modified_ms",
        "number",
        "open_count",
    )

    def __init__(self, number: int, now_ms: int) -> None:
        self.number = number
        self.modified_ms = now_ms
        self.content = bytearray()
        self.disk_size_bytes = 0
        self.disk_sectors: dict[int, bytearray] = {}
        self.lost_sectors: set[int] = set()
        self.is_linked = True
        self.open_count = 0
        self.lock_fd: int | None = None

    # Changes of the page cache

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Writes bytes (a memoryview must be one of bytes) at `position`."""
        content = self.content
        size_bytes = len(content)
        end = position + len(data)
        if position - position % SECTOR_BYTES < self.disk_size_bytes or self.lost_sectors:
            self._touch(position, end)
        if position >= size_bytes:
            if position > size_bytes:
                content.extend(bytes(position - size_bytes))
            content += data
        else:
            content[position:end] = data

    def resize(self, size_bytes: int) -> None:
        growth = size_bytes - len(self.content)
        if growth > 0:
            self.content.extend(bytes(growth))
        elif growth < 0:
            self._touch(size_bytes, len(self.content))
            del self.content[size_bytes:]

    def _touch(self, start: int, end: int) -> None:
        """Puts aside what the disk has of the sectors from `start` to `end`, before they change."""
        disk_sectors, content = self.disk_sectors, self.content
        disk_end = min(end, self.disk_size_bytes)
        for sector in range(start // SECTOR_BYTES, -(-disk_end // SECTOR_BYTES)):
            if sector not in disk_sectors:
                position = sector * SECTOR_BYTES
                disk_sectors[sector] = content[
                    position : min(position + SECTOR_BYTES, self.disk_size_bytes)
                ]
        if self.lost_sectors:
            self.lost_sectors.difference_update(
                range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES))
            )

    # Syncs

    def sync(self) -> None:
        if self.lost_sectors:
            self.disk_sectors = {
                sector: piece
                for sector, piece in self.disk_sectors.items()
                if sector in self.lost_sectors
            }
        else:
            self.disk_sectors.clear()
        self.disk_size_bytes = len(self.content)

    def fail_sync(self, rng: random.Random) -> None:
        """A sync could not write: what waited for it still does, or some of it is given up.

        What is given up stays in the page cache, where it counts as clean, or leaves it at once, so
        that reads see what the disk has.
        """
        mode = rng.choice(("waits", "clean", "evicted"))
        if mode == "waits":
            return
        for sector in self._unsynced_sectors():
            if rng.random() < 0.5:
                continue
            if mode == "clean":
                self.disk_sectors.setdefault(sector, bytearray())
                self.lost_sectors.add(sector)
            else:
                self._revert(sector)
                self.disk_sectors.pop(sector, None)

    def _unsynced_sectors(self) -> list[int]:
        """The sectors of the page cache that a sync would write, in order."""
        size_bytes = len(self.content)
        sectors = {sector for sector in self.disk_sectors if sector * SECTOR_BYTES < size_bytes}
        sectors.update(
            range(-(-self.disk_size_bytes // SECTOR_BYTES), -(-size_bytes // SECTOR_BYTES))
        )
        return sorted(sectors - self.lost_sectors)

    def _revert(self, sector: int) -> None:
        """Makes the page cache what the disk has of a sector, as far as the file goes."""
        position = sector * SECTOR_BYTES
        size_bytes = min(SECTOR_BYTES, len(self.content) - position)
        if size_bytes > 0:
            piece = self.disk_sectors.get(sector, b"")[:size_bytes]
            self.content[position : position + size_bytes] = piece.ljust(size_bytes, b"\0")

    # The end of the page cache

    def cut_power(self, rng: random.Random, torn_sector: float = 0.0) -> None:
        """Leaves what the disk holds of a file that it still lists.

        `torn_sector` is how likely an unsynced sector of a torn file comes out damaged.
        """
        self.is_linked = True  # a removal that the disk does not know of has not happened
        size_bytes = len(self.content)
        if self.disk_sectors or size_bytes != self.disk_size_bytes:
            self._lose(rng, torn_sector, size_bytes)
            self.disk_sectors.clear()
            self.lost_sectors.clear()
            self.disk_size_bytes = len(self.content)

    def _lose(self, rng: random.Random, torn_sector: float, size_bytes: int) -> None:
        unsynced = self._unsynced_sectors()
        mode = rng.choice(("dropped", "kept", "torn"))
        if mode == "dropped":
            size_after = self.disk_size_bytes
        elif mode == "kept":
            size_after = size_bytes
        else:
            shorter, longer = sorted((size_bytes, self.disk_size_bytes))
            between = rng.randint(shorter, longer)
            size_after = rng.choice((size_bytes, self.disk_size_bytes, between))
        self._restore_tail()
        for sector in sorted(self.lost_sectors):
            self._revert(sector)
        if mode == "dropped":
            for sector in unsynced:
                self._revert(sector)
        elif mode == "torn":
            for sector in unsynced:
                if torn_sector and rng.random() < torn_sector:
                    self._tear(sector, size_bytes, rng)
                elif rng.random() < 0.5:
                    self._revert(sector)
        del self.content[size_after:]

    def _restore_tail(self) -> None:
        """Brings back what the disk has behind the end of a file that was cut."""
        content, start = self.content, len(self.content)
        for sector in range(start // SECTOR_BYTES, -(-self.disk_size_bytes // SECTOR_BYTES)):
            position = sector * SECTOR_BYTES
            end = min(position + SECTOR_BYTES, self.disk_size_bytes)
            if len(content) < end:
                piece = self.disk_sectors.get(sector, b"").ljust(SECTOR_BYTES, b"\0")
                content += piece[len(content) - position : end - position]

    def _tear(self, sector: int, size_bytes: int, rng: random.Random) -> None:
        """Flips a bit among the unsynced bytes of a sector, or zeroes them; synced ones stay."""
        start = sector * SECTOR_BYTES
        old = self.disk_sectors.get(sector, b"")
        unsynced = [
            position
            for position in range(start, min(start + SECTOR_BYTES, size_bytes))
            if position - start >= len(old) or self.content[position] != old[position - start]
        ]
        if not unsynced:
            return
        if rng.random() < 0.5:
            self.content[rng.choice(unsynced)] ^= 1 << rng.randrange(8)
        else:
            for position in unsynced:
                self.content[position] = 0

    # Damage

    def flip_bit(self, position: int, bit: int) -> None:
        """Flips a bit in the page cache and on the disk."""
        self._overwrite(position, bytes([self.content[position] ^ 1 << bit]))

    def zero_sector(self, position: int) -> None:
        """Zeroes the sector that holds `position`, in the page cache and on the disk."""
        start = position - position % SECTOR_BYTES
        self._overwrite(start, bytes(min(SECTOR_BYTES, len(self.content) - start)))

    def _overwrite(self, position: int, data: bytes) -> None:
        self.content[position : position + len(data)] = data
        sector, start = divmod(position, SECTOR_BYTES)
        piece = self.disk_sectors.get(sector, bytearray())
        piece[start : start + len(data)] = data[: max(0, len(piece) - start)]


class DirectoryInode:
    """A directory: its entries in memory, those on the disk, and the changes between."""

    __slots__ = ("changes", "disk_entries", "entries", "modified_ms", "number")

    def __init__(self, number: int, now_ms: int) -> None:
        self.number = number
        self.modified_ms = now_ms
        self.entries: dict[str, FileInode | DirectoryInode] = {}
        self.disk_entries: dict[str, FileInode | DirectoryInode] = {}
        self.changes: list[tuple[str, FileInode | DirectoryInode | None, str]] = []
        """Each as (name, what it names from now on, the name that goes in a rename)."""

    def link(self, name: str, inode: FileInode | DirectoryInode) -> None:
        self.entries[name] = inode
        self.changes.append((name, inode, ""))

    def unlink(self, name: str) -> None:
        del self.entries[name]
        self.changes.append((name, None, ""))

    def rename(self, source: str, target: str) -> None:
        self.entries[target] = inode = self.entries.pop(source)
        self.changes.append((target, inode, source))

    def sync(self) -> None:
        self._write_changes(len(self.changes))

    def cut_power(self, rng: random.Random) -> None:
        """Leaves the entries that the disk has: those of the last sync, and the first changes."""
        if self.changes:
            self._write_changes(rng.randint(0, len(self.changes)))
            self.changes.clear()
            self.entries = self.disk_entries.copy()

    def _write_changes(self, count: int) -> None:
        for name, inode, source in self.changes[:count]:
            if source:
                self.disk_entries.pop(source, None)
            if inode is None:
                self.disk_entries.pop(name, None)
            else:
                self.disk_entries[name] = inode
        del self.changes[:count]
