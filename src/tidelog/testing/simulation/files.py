"""The `Files` of a node on a simulated disk, for one life of the node.

Errors are those of Linux: a test compares the two call by call.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from tidelog.testing.faults import PowerCut
from tidelog.testing.simulation.inodes import SECTOR_BYTES, DirectoryInode, FileInode
from tidelog.world.files import Buffer, StrPath

if TYPE_CHECKING:
    from tidelog.testing.simulation.disk import SimulatedDisk

_NAME_BYTES_MAX = 255
_BUFFERS_MAX = 1024  # of one pwritev
_UNLIMITED_BYTES = 1 << 40  # the size of a disk without a limit
_KNOWN_FLAGS = (
    os.O_ACCMODE | os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_APPEND | os.O_DIRECTORY | os.O_CLOEXEC
)

Inode = FileInode | DirectoryInode


def os_error(code: int, path: str | None = None) -> OSError:
    return OSError(code, os.strerror(code), path)


@lru_cache(maxsize=8192)
def path_parts(path: str) -> tuple[str, ...]:
    """The names on the way from the root to `path`."""
    if not path:
        raise os_error(errno.ENOENT, path)
    if "\0" in path:
        raise ValueError("embedded null byte")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ValueError(f"{path}: the simulated disk takes no paths with '..'")
    if any(len(part.encode()) > _NAME_BYTES_MAX for part in parts):
        raise os_error(errno.ENAMETOOLONG, path)
    return parts


def find_inode(root: DirectoryInode, path: str) -> Inode:
    """What `path` names. Raises FileNotFoundError and NotADirectoryError."""
    inode: Inode = root
    for part in path_parts(path):
        if isinstance(inode, FileInode):
            raise os_error(errno.ENOTDIR, path)
        child = inode.entries.get(part)
        if child is None:
            raise os_error(errno.ENOENT, path)
        inode = child
    return inode


class _Descriptor:
    """An open file or directory; `reads` and `writes` are the file if it was opened for that."""

    __slots__ = ("appends", "inode", "path", "reads", "writes")

    def __init__(self, inode: Inode, path: str, flags: int) -> None:
        self.inode = inode
        self.path = path
        self.appends = bool(flags & os.O_APPEND)
        file = inode if isinstance(inode, FileInode) else None
        access = flags & os.O_ACCMODE
        self.reads = None if access == os.O_WRONLY else file
        self.writes = None if access == os.O_RDONLY else file


class SimulatedFiles:
    """A `Files`. Its descriptors are unique over the disk's life.

    When the life has ended, every operation raises PowerCut, but for `close`, which has no effect:
    objects that own a descriptor close it when the garbage collector finds them.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._descriptors: dict[int, _Descriptor] = {}
        self._ended = False

    def end(self) -> None:
        """Closes all descriptors; nothing can be done through this any more."""
        for fd in list(self._descriptors):
            self.close(fd)
        self._ended = True

    # Descriptors

    def open(self, path: StrPath, flags: int, mode: int = 0o644, /) -> int:
        path = str(path)
        if flags & ~_KNOWN_FLAGS:
            raise os_error(errno.EINVAL, path)
        parent, name, inode = self._look_up(path)
        disk = self._disk
        if inode is None:
            if not flags & os.O_CREAT:
                raise os_error(errno.ENOENT, path)
            disk.before_change("create", path)
            inode = FileInode(disk.next_inode(), disk.now_ms())
            parent.link(name, inode)
            parent.modified_ms = disk.now_ms()
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise os_error(errno.EEXIST, path)
        elif isinstance(inode, DirectoryInode):
            if flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC):
                raise os_error(errno.EISDIR, path)
            disk.before_read("open", path)
        elif flags & os.O_DIRECTORY:
            raise os_error(errno.ENOTDIR, path)
        elif flags & os.O_TRUNC:
            disk.before_change("truncate", path)
            self._resize(inode, 0)
        else:
            disk.before_read("open", path)
        fd = disk.next_descriptor()
        self._descriptors[fd] = _Descriptor(inode, path, flags)
        if isinstance(inode, FileInode):
            inode.open_count += 1
        return fd

    def close(self, fd: int, /) -> None:
        descriptor = self._descriptors.pop(fd, None)
        if descriptor is None:
            if self._ended:
                return
            raise os_error(errno.EBADF)
        inode = descriptor.inode
        if isinstance(inode, FileInode):
            inode.open_count -= 1
            if inode.lock_fd == fd:
                inode.lock_fd = None
            self._free_if_unused(inode)

    def pread(self, fd: int, size_bytes: int, position: int, /) -> bytes:
        if size_bytes < 0 or position < 0:
            raise os_error(errno.EINVAL)
        descriptor = self._descriptors.get(fd) or self._no_descriptor()
        file = descriptor.reads
        if file is None:
            is_directory = isinstance(descriptor.inode, DirectoryInode)
            raise os_error(errno.EISDIR if is_directory else errno.EBADF)
        self._disk.before_read("pread", descriptor.path, size_bytes)
        return bytes(memoryview(file.content)[position : position + size_bytes])

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:
        if isinstance(data, memoryview) and (data.itemsize != 1 or data.ndim != 1):
            data = data.cast("B")
        return self._write("pwrite", fd, data, position)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, /) -> int:
        if len(buffers) > _BUFFERS_MAX:
            raise os_error(errno.EINVAL)
        return self._write("pwritev", fd, b"".join(buffers), position)

    def _write(self, name: str, fd: int, data: Buffer, position: int) -> int:
        if position < 0:
            raise os_error(errno.EINVAL)
        descriptor = self._descriptors.get(fd) or self._no_descriptor()
        file = descriptor.writes
        if file is None:
            raise os_error(errno.EBADF)
        disk = self._disk
        size_bytes = len(data)
        disk.before_change(name, descriptor.path, size_bytes)
        if not size_bytes:
            return 0
        if descriptor.appends:
            position = len(file.content)
        if disk.faults.short_write and disk.random.random() < disk.faults.short_write:
            size_bytes = disk.random.randint(1, size_bytes)
        growth_bytes = position + size_bytes - len(file.content)
        if growth_bytes > 0:
            room_bytes = disk.room_to_grow(growth_bytes)
            size_bytes -= growth_bytes - room_bytes
            if size_bytes <= 0:
                raise os_error(errno.ENOSPC)
            disk.used_bytes += room_bytes
        file.write(data if size_bytes == len(data) else memoryview(data)[:size_bytes], position)
        file.modified_ms = disk.now_ms()
        disk.bytes_written += size_bytes
        return size_bytes

    def ftruncate(self, fd: int, size_bytes: int, /) -> None:
        if size_bytes < 0:
            raise os_error(errno.EINVAL)
        descriptor = self._descriptors.get(fd) or self._no_descriptor()
        file = descriptor.writes
        if file is None:
            raise os_error(errno.EINVAL)
        self._disk.before_change("ftruncate", descriptor.path, size_bytes)
        self._resize(file, size_bytes)

    def fallocate(self, fd: int, position: int, size_bytes: int, /) -> None:
        descriptor = self._descriptors.get(fd) or self._no_descriptor()
        file = descriptor.writes
        if position < 0 or size_bytes <= 0:
            raise os_error(errno.EINVAL)
        if file is None:
            raise os_error(errno.EBADF)
        self._disk.before_change("fallocate", descriptor.path, position + size_bytes)
        if position + size_bytes > len(file.content):
            self._resize(file, position + size_bytes)

    def fsync(self, fd: int, /) -> None:
        descriptor = self._descriptors.get(fd) or self._no_descriptor()
        self._sync("fsync", descriptor.path, descriptor.inode)

    def fdatasync(self, fd: int, /) -> None:
        descriptor = self._descriptors.get(fd) or self._no_descriptor()
        self._sync("fdatasync", descriptor.path, descriptor.inode)

    def fstat(self, fd: int, /) -> os.stat_result:
        descriptor = self._descriptors.get(fd) or self._no_descriptor()
        self._disk.before_read("fstat", descriptor.path)
        return _stat_result(descriptor.inode)

    def map(self, fd: int, size_bytes: int, /) -> bytes:
        """A copy: what is written later does not show."""
        descriptor = self._descriptors.get(fd) or self._no_descriptor()
        file = descriptor.reads
        if file is None:
            is_directory = isinstance(descriptor.inode, DirectoryInode)
            raise os_error(errno.ENODEV if is_directory else errno.EACCES)
        self._disk.before_read("map", descriptor.path, size_bytes)
        if size_bytes <= 0:
            raise ValueError("cannot map nothing")
        if size_bytes > len(file.content):
            raise ValueError("mmap length is greater than file size")
        return bytes(memoryview(file.content)[:size_bytes])

    # Names

    def stat(self, path: StrPath, /) -> os.stat_result:
        inode = self._find(str(path))
        self._disk.before_read("stat", str(path))
        return _stat_result(inode)

    def exists(self, path: StrPath, /) -> bool:
        try:
            self._find(str(path))
        except OSError:
            found = False
        else:
            found = True
        self._disk.before_read("exists", str(path))
        return found

    def listdir(self, path: StrPath, /) -> list[str]:
        directory = self._find_directory(str(path))
        self._disk.before_read("listdir", str(path))
        return sorted(directory.entries, key=self._disk.listing_order)

    def mkdir(self, path: StrPath, /) -> None:
        if self._ended:
            raise PowerCut
        disk = self._disk
        disk.before_read("stat", str(path))
        directory = disk.root
        parts = path_parts(str(path))
        for depth, part in enumerate(parts, start=1):
            child = directory.entries.get(part)
            if child is None:
                disk.before_change("mkdir", "/" + "/".join(parts[:depth]))
                child = DirectoryInode(disk.next_inode(), disk.now_ms())
                directory.link(part, child)
                directory.modified_ms = disk.now_ms()
            elif isinstance(child, FileInode):
                raise os_error(errno.EEXIST if depth == len(parts) else errno.ENOTDIR, str(path))
            directory = child

    def rmdir(self, path: StrPath, /) -> None:
        path = str(path)
        parent, name, inode = self._look_up(path)
        if inode is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(inode, FileInode):
            raise os_error(errno.ENOTDIR, path)
        if inode is parent:
            raise os_error(errno.EBUSY, path)
        if inode.entries:
            raise os_error(errno.ENOTEMPTY, path)
        self._disk.before_change("rmdir", path)
        parent.unlink(name)
        parent.modified_ms = self._disk.now_ms()

    def unlink(self, path: StrPath, /) -> None:
        path = str(path)
        parent, name, inode = self._look_up(path)
        if inode is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(inode, DirectoryInode):
            raise os_error(errno.EISDIR, path)
        self._disk.before_change("unlink", path)
        parent.unlink(name)
        parent.modified_ms = self._disk.now_ms()
        inode.is_linked = False
        self._free_if_unused(inode)

    def rename(self, source: StrPath, target: StrPath, /) -> None:
        """Within one directory only.

        What a power cut may leave of a rename between two directories differs by filesystem, and
        storage does without.
        """
        source, target = str(source), str(target)
        parent, source_name, inode = self._look_up(source)
        target_parent, target_name, replaced = self._look_up(target)
        if inode is parent or replaced is target_parent:
            raise os_error(errno.EBUSY, source)
        if inode is None:
            raise os_error(errno.ENOENT, source)
        if parent is not target_parent:
            raise os_error(errno.EXDEV, target)
        if isinstance(inode, DirectoryInode):
            if isinstance(replaced, FileInode):
                raise os_error(errno.ENOTDIR, target)
            if replaced is not None and replaced is not inode and replaced.entries:
                raise os_error(errno.ENOTEMPTY, target)
        elif isinstance(replaced, DirectoryInode):
            raise os_error(errno.EISDIR, target)
        self._disk.before_change("rename", source)
        if replaced is inode:
            return
        parent.rename(source_name, target_name)
        parent.modified_ms = self._disk.now_ms()
        if isinstance(replaced, FileInode):
            replaced.is_linked = False
            self._free_if_unused(replaced)

    def sync_directory(self, path: StrPath, /) -> None:
        directory = self._find_directory(str(path))
        self._sync("sync_directory", str(path), directory)

    def disk_usage(self, path: StrPath, /) -> tuple[int, int]:
        self._find(str(path))
        self._disk.before_read("disk_usage", str(path))
        space_bytes = self._disk.space_bytes
        total_bytes = _UNLIMITED_BYTES if space_bytes is None else space_bytes
        return total_bytes, max(0, total_bytes - self._disk.used_bytes)

    def lock(self, path: StrPath, /) -> int:
        fd = self.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        file = self._descriptors[fd].writes
        assert file is not None
        if file.lock_fd is not None:
            self.close(fd)
            raise os_error(errno.EWOULDBLOCK, str(path))
        file.lock_fd = fd
        return fd

    # Shared

    def _no_descriptor(self) -> _Descriptor:
        if self._ended:
            raise PowerCut
        raise os_error(errno.EBADF)

    def _find(self, path: str) -> Inode:
        if self._ended:
            raise PowerCut
        return find_inode(self._disk.root, path)

    def _find_directory(self, path: str) -> DirectoryInode:
        inode = self._find(path)
        if isinstance(inode, FileInode):
            raise os_error(errno.ENOTDIR, path)
        return inode

    def _look_up(self, path: str) -> tuple[DirectoryInode, str, Inode | None]:
        """The directory that has, or would have, the name; the name; what it names.

        The root is its own directory.
        """
        if self._ended:
            raise PowerCut
        directory = self._disk.root
        parts = path_parts(path)
        if not parts:
            return directory, "", directory
        for part in parts[:-1]:
            child = directory.entries.get(part)
            if child is None:
                raise os_error(errno.ENOENT, path)
            if isinstance(child, FileInode):
                raise os_error(errno.ENOTDIR, path)
            directory = child
        return directory, parts[-1], directory.entries.get(parts[-1])

    def _sync(self, name: str, path: str, inode: Inode) -> None:
        disk = self._disk
        try:
            disk.before_sync(name, path)
        except OSError:
            if isinstance(inode, FileInode):
                inode.fail_sync(disk.random)
            raise
        inode.sync()

    def _resize(self, file: FileInode, size_bytes: int) -> None:
        growth_bytes = size_bytes - len(file.content)
        if growth_bytes > 0 and self._disk.room_to_grow(growth_bytes) < growth_bytes:
            raise os_error(errno.ENOSPC)
        self._disk.used_bytes += growth_bytes
        file.resize(size_bytes)
        file.modified_ms = self._disk.now_ms()

    def _free_if_unused(self, file: FileInode) -> None:
        """Gives back the space of a file without a name when its last descriptor closes."""
        if not file.is_linked and not file.open_count:
            self._disk.used_bytes -= len(file.content)


def _stat_result(inode: Inode) -> os.stat_result:
    if isinstance(inode, FileInode):
        mode, links, size_bytes = stat.S_IFREG | 0o644, int(inode.is_linked), len(inode.content)
    else:
        mode, links, size_bytes = stat.S_IFDIR | 0o755, 2, 4096
    milliseconds = inode.modified_ms
    times = (milliseconds // 1000,) * 3 + (milliseconds / 1000,) * 3 + (milliseconds * 10**6,) * 3
    blocks = -(-size_bytes // SECTOR_BYTES)
    return os.stat_result((mode, inode.number, 1, links, 0, 0, size_bytes, *times, 4096, blocks, 0))
