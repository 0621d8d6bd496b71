"""A disk in memory that can lose power, fill up and break, as its seed has it.

A `SimulatedDisk` outlives the node on it: `files` begins a life of the node, `kill` ends it as
`kill -9` would, and `power_cut` ends it with the loss of what was not synced. What a cut may leave,
and what a failed sync may do, is told in `tidelog.testing.simulation.inodes`.

The same seed and the same calls give the same disk. Nothing here waits: how long an operation
takes is up to whoever runs it.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

from tidelog.testing.faults import PowerCut
from tidelog.testing.simulation.files import SimulatedFiles, find_inode, os_error, path_parts
from tidelog.testing.simulation.inodes import DirectoryInode, FileInode
from tidelog.world.files import StrPath

__all__ = ["DiskFaults", "PowerCut", "SimulatedDisk"]

_FIRST_DESCRIPTOR = 1 << 20  # far from those of the operating system


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """How likely each operation, or each sector, meets a fault: probabilities.

    An error is EIO, once. `write_error` is for every change but syncs: of content, sizes and names.
    `short_write` writes a part of what was given and says so. `torn_sector` damages unsynced
    sectors at a power cut: a flipped bit, or zeros.
    """

    read_error: float = 0.0
    write_error: float = 0.0
    sync_error: float = 0.0
    short_write: float = 0.0
    torn_sector: float = 0.0


class SimulatedDisk:
    """A tree of directories and files, with `/` as its root. For one thread.

    `now_ms` is the clock for modification times. `directories` are there, and durable, from the
    start. `space_bytes` is the room for file content (None: no limit).

    `operations` counts those that change something, syncs among them. `on_operation(name, path,
    detail)` is told of every operation before it happens, of reads too, with the number of bytes
    where there is one. Closing is not an operation, for the garbage collector may do that.

    `is_cut` says that the last life ended with the power, or at an operation (`was_killed` tells
    which, `ended_at` where). `is_in_doubt` says that a sync has failed since the power was last
    cut: the page cache may hold what the disk never gets. `errors` counts those that `fail_once`
    asked for, and `on_error(kind, path)` is told of each.
    """

    def __init__(
        self,
        random: Random,
        *,
        now_ms: Callable[[], int] = lambda: 0,
        faults: DiskFaults | None = None,
        space_bytes: int | None = None,
        directories: Iterable[StrPath] = (),
        on_operation: Callable[[str, str, int], None] | None = None,
    ) -> None:
        self.random = random
        self.now_ms = now_ms
        self.faults = faults or DiskFaults()
        self.space_bytes = space_bytes
        self.on_operation = on_operation
        self.operations = 0
        self.syncs = 0
        self.bytes_written = 0
        self.used_bytes = 0
        self.is_cut = False
        self.was_killed = False
        self.ended_at = ""
        self.errors = 0
        self.power_cuts = 0
        self.is_in_doubt = False
        self.on_error: Callable[[str, str], None] = lambda kind, path: None
        self.root = DirectoryInode(1, now_ms())
        self._failing: list[tuple[str, bool, int]] = []
        self._failing_soon: dict[str, int] = {}
        self._operations_left: int | None = None
        self._inode_count = 1
        self._next_descriptor = _FIRST_DESCRIPTOR
        self._listing_key = random.randbytes(16)
        self._listing_order: dict[str, bytes] = {}
        self._life: SimulatedFiles | None = None
        for path in directories:
            self._make_directory(path)

    def _make_directory(self, path: StrPath) -> None:
        directory = self.root
        for name in path_parts(str(path)):
            child = directory.entries.get(name)
            if child is None:
                child = DirectoryInode(self.next_inode(), self.now_ms())
                directory.link(name, child)
                directory.sync()
            assert isinstance(child, DirectoryInode)
            directory = child

    # Lives of the node

    def files(self) -> SimulatedFiles:
        """The filesystem for one life of the node, which lasts until `kill` or `power_cut`."""
        if self._life is not None:
            raise RuntimeError("the node is still up: end its life with kill() or power_cut()")
        self.is_cut = self.was_killed = False
        self.ended_at = ""
        self._life = SimulatedFiles(self)
        return self._life

    def kill(self) -> None:
        """Ends the present life: its descriptors close; what it wrote stays in the page cache."""
        self._operations_left = None
        if self.on_operation is not None:
            self.on_operation("kill", "/", 0)
        if self._life is not None:
            self._life.end()
            self._life = None

    def power_cut(self) -> None:
        """Ends the present life and loses what the disk does not have.

        The life's operations raise PowerCut from now on. `is_cut` holds until the next life.
        """
        if self.is_cut and not self.was_killed:
            return
        self.is_cut, self.was_killed = True, False
        self.power_cuts += 1
        self._operations_left = None
        if self.on_operation is not None:
            self.on_operation("power_cut", "/", 0)
        if self._life is not None:
            self._life.end()
            self._life = None
        self.used_bytes = 0
        self.is_in_doubt = False
        self._cut_power(self.root)

    def _cut_power(self, directory: DirectoryInode) -> None:
        directory.cut_power(self.random)
        for _, inode in sorted(directory.entries.items()):
            if isinstance(inode, DirectoryInode):
                self._cut_power(inode)
            else:
                inode.cut_power(self.random, self.faults.torn_sector)
                self.used_bytes += len(inode.content)

    def end_after_operations(
        self, count: int | None, *, how: Literal["power", "kill"] = "power"
    ) -> None:
        """The power goes, or the node is killed, at the `count`th operation from now that changes
        something, which has no effect any more; None takes it back."""
        if count is not None and count < 1:
            raise ValueError(f"the power cannot go at operation {count}: the next one is 1")
        self._operations_left = count
        self._ends_by_kill = how == "kill"

    _ends_by_kill = False

    # Faults

    def fail(
        self, path: StrPath, *, only: Literal["all", "sync"] = "all", error: int = errno.EIO
    ) -> None:
        """Operations (or only syncs) on `path` and what lies under it fail from now on."""
        self._failing.append((str(path).rstrip("/"), only == "sync", error))

    def fail_once(self, kind: Literal["read", "write", "sync"], *, after: int = 1) -> None:
        """The `after`th operation of this kind from now fails with EIO; a second call for the same
        kind replaces the first. A read is one of content."""
        self._failing_soon[kind] = after

    def heal(self) -> None:
        """Ends what `fail` and `fail_once` began, and the limit of space."""
        self._failing.clear()
        self._failing_soon.clear()
        self.space_bytes = None

    def damage(
        self, path: StrPath, position: int | None = None, *, how: Literal["flip", "zero"] = "flip"
    ) -> int:
        """Flips a bit at `position`, or zeroes its sector, whether it was synced or not.

        Without a position it is drawn; it is returned.
        """
        file = self._file(path)
        if position is None:
            position = self.random.randrange(len(file.content))
        if how == "flip":
            file.flip_bit(position, self.random.randrange(8))
        else:
            file.zero_sector(position)
        return position

    # What tests look at

    def read(self, path: StrPath, start: int = 0) -> bytes:
        """A file's content from a byte on, as the page cache has it."""
        return bytes(self._file(path).content[start:])

    def tree(self) -> dict[str, bytes]:
        """The content of all files by path."""
        return {
            path: bytes(inode.content)
            for path, inode in self._walk(self.root, "")
            if isinstance(inode, FileInode)
        }

    def digest(self) -> str:
        """A SHA-256 of all names and contents, which tells two trees apart."""
        digest = hashlib.sha256()
        for path, inode in self._walk(self.root, ""):
            content = inode.content if isinstance(inode, FileInode) else None
            size_bytes = -1 if content is None else len(content)
            digest.update(f"{path}\0{size_bytes}\0".encode())
            digest.update(content or b"")
        return digest.hexdigest()

    def _file(self, path: StrPath) -> FileInode:
        inode = find_inode(self.root, str(path))
        if not isinstance(inode, FileInode):
            raise os_error(errno.EISDIR, str(path))
        return inode

    def _walk(
        self, directory: DirectoryInode, path: str
    ) -> Iterator[tuple[str, FileInode | DirectoryInode]]:
        for name, inode in sorted(directory.entries.items()):
            yield f"{path}/{name}", inode
            if isinstance(inode, DirectoryInode):
                yield from self._walk(inode, f"{path}/{name}")

    # What `SimulatedFiles` asks before it acts

    def before_read(self, name: str, path: str, detail: int = 0) -> None:
        if self.on_operation is not None:
            self.on_operation(name, path, detail)
        if self._failing:
            self._fail_where_told(path, is_sync=False)
        if self._failing_soon and name in ("pread", "map"):
            self._fail_when_due("read", path)
        if (probability := self.faults.read_error) and self.random.random() < probability:
            raise os_error(errno.EIO, path)

    def before_change(self, name: str, path: str, detail: int = 0) -> None:
        if self._operations_left is not None:
            self._count_down(name, path)
        if self.on_operation is not None:
            self.on_operation(name, path, detail)
        if self._failing:
            self._fail_where_told(path, is_sync=False)
        if self._failing_soon:
            self._fail_when_due("write", path)
        if (probability := self.faults.write_error) and self.random.random() < probability:
            raise os_error(errno.EIO, path)
        self.operations += 1

    def before_sync(self, name: str, path: str) -> None:
        if self._operations_left is not None:
            self._count_down(name, path)
        if self.on_operation is not None:
            self.on_operation(name, path, 0)
        if self._failing:
            self._fail_where_told(path, is_sync=True)
        if self._failing_soon:
            self._fail_when_due("sync", path)
        if (probability := self.faults.sync_error) and self.random.random() < probability:
            raise os_error(errno.EIO, path)
        self.operations += 1
        self.syncs += 1

    def _count_down(self, name: str, path: str) -> None:
        assert self._operations_left is not None
        self._operations_left -= 1
        if self._operations_left == 0:
            self.ended_at = f"{name} of {path}"
            if self._ends_by_kill:
                self.kill()
                self.is_cut = self.was_killed = True
            else:
                self.power_cut()
            raise PowerCut

    def _fail_where_told(self, path: str, *, is_sync: bool) -> None:
        for prefix, only_sync, error in self._failing:
            if (is_sync or not only_sync) and (path + "/").startswith(prefix + "/"):
                raise os_error(error, path)

    def _fail_when_due(self, kind: str, path: str) -> None:
        left = self._failing_soon.get(kind)
        if left is None:
            return
        if left > 1:
            self._failing_soon[kind] = left - 1
            return
        del self._failing_soon[kind]
        self.errors += 1
        self.is_in_doubt |= kind == "sync"
        self.on_error(kind, path)
        raise os_error(errno.EIO, path)

    def room_to_grow(self, growth_bytes: int) -> int:
        """How many of so many bytes there is room for."""
        if self.space_bytes is None:
            return growth_bytes
        return max(0, min(growth_bytes, self.space_bytes - self.used_bytes))

    def next_inode(self) -> int:
        self._inode_count += 1
        return self._inode_count

    def next_descriptor(self) -> int:
        self._next_descriptor += 1
        return self._next_descriptor

    def listing_order(self, name: str) -> bytes:
        """Sorts the names of a directory in an order of this disk's own, as hashed trees do."""
        order = self._listing_order.get(name)
        if order is None:
            order = hashlib.blake2b(name.encode(), digest_size=8, key=self._listing_key).digest()
            self._listing_order[name] = order
        return order
