"""A filesystem that can lose power, fill up and break.

`FaultyFiles` works on a real directory and remembers beside it what a disk would hold: the content
of each file at its last sync, and the entries of each directory at its last sync. `power_cut` makes
a copy of the directory as a machine might find it after losing power:

- what was synced is there;
- of the writes since, each sector is there or not, and the file has its old or its new length, or
  one between;
- of the creations, renames and removals since a directory's sync, the first few are there, in
  order (journaling filesystems keep the order of changes to one directory).

The choice is the seed's. `cut_after` stops the process at a given operation: from then on every
operation raises `PowerCut`.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tidelog.world.files import Buffer, StrPath
from tidelog.world.operating_system.files import OsFiles

SECTOR_BYTES = 512

_os_files = OsFiles()


class PowerCut(Exception):
    """The machine is off; no operation has an effect any more."""


class _File:
    """A file: its content lives in the real one, this knows what the disk has of it."""

    __slots__ = ("dirty", "durable", "size_bytes")

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = bytearray(durable)
        self.size_bytes = len(durable)
        self.dirty: list[tuple[int, int]] = []

    def sync(self, fd: int) -> None:
        size_bytes = self.size_bytes
        if len(self.durable) < size_bytes:
            self.durable += bytes(size_bytes - len(self.durable))
        del self.durable[size_bytes:]
        for start, end in self.dirty:
            end = min(end, size_bytes)
            if start < end:
                self.durable[start:end] = os.pread(fd, end - start, start)
        self.dirty.clear()

    def after_cut(self, current: bytes, rng: random.Random) -> bytes:
        """What the disk holds of a file of which `current` was in memory."""
        unsynced = bool(self.dirty) or len(current) != len(self.durable)
        mode = rng.choice(("dropped", "kept", "torn")) if unsynced else "dropped"
        if mode == "dropped":
            return bytes(self.durable)
        if mode == "kept":
            return current
        shorter, longer = sorted((len(current), len(self.durable)))
        size_bytes = rng.choice((len(current), len(self.durable), rng.randint(shorter, longer)))
        content = bytearray(self.durable[:size_bytes])
        content += bytes(size_bytes - len(content))
        for start, end in self.dirty:
            first = start // SECTOR_BYTES * SECTOR_BYTES
            for sector in range(first, end, SECTOR_BYTES):
                piece = current[sector : min(sector + SECTOR_BYTES, size_bytes)]
                if rng.random() < 0.5:
                    content[sector : sector + len(piece)] = piece
        return bytes(content)


class _Directory:
    """A directory: what is in it now, what the disk knows of, and the changes between."""

    __slots__ = ("changes", "durable", "entries", "places")

    def __init__(self) -> None:
        self.entries: dict[str, _File | _Directory] = {}
        self.places: set[str] = set()  # of names that are gone: these fit in again
        self.durable: dict[str, _File | _Directory] = {}
        self.changes: list[tuple[str, str, _File | _Directory | None]] = []

    def link(self, name: str, node: _File | _Directory) -> None:
        self.entries[name] = node
        self.places.discard(name)
        self.changes.append(("link", name, node))

    def unlink(self, name: str) -> None:
        del self.entries[name]
        self.places.add(name)
        self.changes.append(("unlink", name, None))

    def rename(self, source: str, target: str) -> None:
        self.entries[target] = node = self.entries.pop(source)
        self.places.add(source)
        self.places.discard(target)
        self.changes.append((f"rename {source}", target, node))

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.changes.clear()

    def after_cut(self, rng: random.Random) -> dict[str, _File | _Directory]:
        entries = dict(self.durable)
        for change, name, node in self.changes[: rng.randint(0, len(self.changes))]:
            if change.startswith("rename "):
                entries.pop(change.removeprefix("rename "), None)
            if node is None:
                entries.pop(name, None)
            else:
                entries[name] = node
        return entries


class FaultyFiles:
    """A `Files` for everything under `root`; thread-safe.

    `operations` counts the operations that change something; `cut_after` is how many may happen
    before the power goes. `space_bytes` is the room for file content (None: no limit). Without
    `has_room_for_names` no directory can grow: it takes names that it has or had, and no others.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.operations = 0
        self.cut_after: int | None = None
        self.space_bytes: int | None = None
        self.has_room_for_names = True
        self.used_bytes = 0
        self._lock = threading.RLock()
        self._tree = _Directory()
        self._open: dict[int, tuple[_File, str]] = {}
        self._failing: list[tuple[str, bool, int]] = []
        root.mkdir(parents=True, exist_ok=True)
        self._load(root, self._tree)

    # Faults

    def fail(
        self, path: StrPath, *, only: Literal["all", "sync"] = "all", error: int = errno.EIO
    ) -> None:
        """Operations (or only syncs) on `path` and what lies under it fail from now on."""
        self._failing.append((str(path), only == "sync", error))

    def heal(self) -> None:
        """Ends failures and the limits of space."""
        self._failing.clear()
        self.space_bytes = None
        self.has_room_for_names = True

    def power_cut(self, target: Path, seed: int) -> FaultyFiles:
        """Makes `target` what the disk holds after a power cut now, and opens it."""
        with self._lock:
            self.cut_after = self.operations
            rng = random.Random(seed)
            shutil.rmtree(target, ignore_errors=True)
            contents = {node: path.read_bytes() for path, node in self._walk(self.root, self._tree)}
            for fd, (node, _) in self._open.items():
                if node not in contents:  # unlinked or replaced, but the disk may still list it
                    contents[node] = os.pread(fd, node.size_bytes, 0)
            self._write_tree(target, self._tree, contents, rng)
            return FaultyFiles(target)

    def _write_tree(
        self, path: Path, directory: _Directory, contents: dict[_File, bytes], rng: random.Random
    ) -> None:
        path.mkdir(parents=True)
        for name, node in sorted(directory.after_cut(rng).items()):
            if isinstance(node, _Directory):
                self._write_tree(path / name, node, contents, rng)
            else:
                current = contents.get(node, bytes(node.durable))
                (path / name).write_bytes(node.after_cut(current, rng))

    def _walk(self, path: Path, directory: _Directory) -> list[tuple[Path, _File]]:
        found = []
        for name, node in directory.entries.items():
            if isinstance(node, _Directory):
                found += self._walk(path / name, node)
            else:
                found.append((path / name, node))
        return found

    def _load(self, path: Path, directory: _Directory) -> None:
        for entry in sorted(path.iterdir()):
            node: _File | _Directory
            if entry.is_dir():
                node = _Directory()
                self._load(entry, node)
            else:
                node = _File(entry.read_bytes())
                self.used_bytes += node.size_bytes
            directory.entries[entry.name] = directory.durable[entry.name] = node

    # Bookkeeping

    def _change(self, path: StrPath, *, is_sync: bool = False) -> None:
        """Counts an operation that changes something, and lets it fail when it must."""
        if self.cut_after is not None and self.operations >= self.cut_after:
            raise PowerCut
        self._check(path, is_sync=is_sync)
        self.operations += 1

    def _check(self, path: StrPath, *, is_sync: bool = False) -> None:
        if self.cut_after is not None and self.operations >= self.cut_after:
            raise PowerCut
        for prefix, only_sync, error in self._failing:
            if str(path).startswith(prefix) and (is_sync or not only_sync):
                raise OSError(error, os.strerror(error), str(path))

    def _directory_of(self, path: StrPath) -> tuple[_Directory, str]:
        parts = Path(path).relative_to(self.root).parts
        directory = self._tree
        for part in parts[:-1]:
            child = directory.entries.get(part)
            if not isinstance(child, _Directory):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            directory = child
        return directory, parts[-1] if parts else ""

    def _find_directory(self, path: StrPath) -> _Directory:
        parent, name = self._directory_of(path)
        node = parent.entries.get(name) if name else self._tree
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return node

    def _grow(self, node: _File, size_bytes: int) -> int:
        """Reserves room to grow to `size_bytes`; returns the size that there is room for."""
        growth = size_bytes - node.size_bytes
        if growth <= 0:
            return size_bytes
        if self.space_bytes is not None and self.used_bytes + growth > self.space_bytes:
            growth = max(0, self.space_bytes - self.used_bytes)
        if growth == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.used_bytes += growth
        node.size_bytes += growth
        return node.size_bytes

    def _require_place(self, directory: _Directory, name: str, path: StrPath) -> None:
        if (
            not self.has_room_for_names
            and name not in directory.entries
            and name not in directory.places
        ):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    # Files

    def open(self, path: StrPath, flags: int, mode: int = 0o644, /) -> int:
        with self._lock:
            directory, name = self._directory_of(path)
            node = directory.entries.get(name)
            if node is None and flags & os.O_CREAT:
                self._change(path)
                self._require_place(directory, name, path)
            else:
                self._check(path)
            if flags & os.O_WRONLY:
                flags = flags & ~os.O_WRONLY | os.O_RDWR  # a sync reads what was written
            fd = os.open(path, flags, mode)
            if isinstance(node, _Directory):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if node is None:
                node = _File()
                directory.link(name, node)
            elif flags & os.O_TRUNC:
                self.used_bytes -= node.size_bytes
                node.size_bytes = 0
            self._open[fd] = (node, str(path))
            return fd

    def close(self, fd: int, /) -> None:
        with self._lock:
            self._open.pop(fd, None)
            os.close(fd)

    def pread(self, fd: int, size_bytes: int, position: int, /) -> bytes:
        self._check(self._open[fd][1])
        return os.pread(fd, size_bytes, position)

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:
        with self._lock:
            node, path = self._open[fd]
            self._change(path)
            view = memoryview(data).cast("B")
            end = self._grow(node, position + len(view)) if position + len(view) else 0
            written = os.pwrite(fd, view[: end - position], position)
            node.dirty.append((position, position + written))
            return written

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, /) -> int:
        return self.pwrite(fd, b"".join(buffers), position)

    def ftruncate(self, fd: int, size_bytes: int, /) -> None:
        with self._lock:
            node, path = self._open[fd]
            self._change(path)
            if size_bytes > node.size_bytes:
                self._grow_fully(node, size_bytes)
            else:
                self.used_bytes -= node.size_bytes - size_bytes
                node.size_bytes = size_bytes
            os.ftruncate(fd, size_bytes)
            # Bytes behind a cut are zeros when the file grows again, whatever the disk had there.
            node.dirty.append((size_bytes, max(size_bytes, len(node.durable))))

    def fallocate(self, fd: int, position: int, size_bytes: int, /) -> None:
        with self._lock:
            node, path = self._open[fd]
            self._change(path)
            end = position + size_bytes
            if end > node.size_bytes:
                self._grow_fully(node, end)
                os.ftruncate(fd, end)

    def _grow_fully(self, node: _File, size_bytes: int) -> None:
        growth = size_bytes - node.size_bytes
        if self.space_bytes is not None and self.used_bytes + growth > self.space_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._grow(node, size_bytes)

    def fsync(self, fd: int, /) -> None:
        with self._lock:
            node, path = self._open[fd]
            self._change(path, is_sync=True)
            node.sync(fd)

    def fdatasync(self, fd: int, /) -> None:
        self.fsync(fd)

    def fstat(self, fd: int, /) -> os.stat_result:
        return os.fstat(fd)

    def map(self, fd: int, size_bytes: int, /) -> mmap.mmap:
        self._check(self._open[fd][1])
        return _os_files.map(fd, size_bytes)

    # Names

    def stat(self, path: StrPath, /) -> os.stat_result:
        self._check(path)
        return os.stat(path)

    def exists(self, path: StrPath, /) -> bool:
        self._check(path)
        return os.path.exists(path)

    def listdir(self, path: StrPath, /) -> list[str]:
        self._check(path)
        return sorted(os.listdir(path))

    def mkdir(self, path: StrPath, /) -> None:
        with self._lock:
            self._check(path)
            directory = self._tree
            at = self.root
            for part in Path(path).relative_to(self.root).parts:
                at /= part
                child = directory.entries.get(part)
                if child is None:
                    self._change(at)
                    self._require_place(directory, part, at)
                    os.mkdir(at)
                    child = _Directory()
                    directory.link(part, child)
                if not isinstance(child, _Directory):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(at))
                directory = child

    def rmdir(self, path: StrPath, /) -> None:
        with self._lock:
            self._change(path)
            os.rmdir(path)
            directory, name = self._directory_of(path)
            directory.unlink(name)

    def rename(self, source: StrPath, target: StrPath, /) -> None:
        with self._lock:
            self._change(source)
            directory, source_name = self._directory_of(source)
            target_directory, target_name = self._directory_of(target)
            if directory is not target_directory:
                raise OSError(errno.EXDEV, "storage renames within one directory only", str(target))
            if source_name in directory.entries:
                self._require_place(directory, target_name, target)
            os.replace(source, target)
            replaced = directory.entries.get(target_name)
            if isinstance(replaced, _File):
                self.used_bytes -= replaced.size_bytes
            directory.rename(source_name, target_name)

    def unlink(self, path: StrPath, /) -> None:
        with self._lock:
            self._change(path)
            os.unlink(path)
            directory, name = self._directory_of(path)
            node = directory.entries[name]
            if isinstance(node, _File):
                self.used_bytes -= node.size_bytes
            directory.unlink(name)

    def sync_directory(self, path: StrPath, /) -> None:
        with self._lock:
            self._change(path, is_sync=True)
            self._find_directory(path).sync()

    def lock(self, path: StrPath, /) -> int:
        self._check(path)
        return _os_files.lock(path)

    def disk_usage(self, path: StrPath, /) -> tuple[int, int]:
        self._check(path)
        total_bytes, usable_bytes = _os_files.disk_usage(path)
        if self.space_bytes is not None:
            return self.space_bytes, max(0, self.space_bytes - self.used_bytes)
        return total_bytes, usable_bytes
