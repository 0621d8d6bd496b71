"""The filesystem as storage sees it.

Every filesystem call of the storage layer goes through a `Files`. `OsFiles` is the operating
system; `tidelog.testing.faults` has one that cuts the power, fills the disk and breaks it. Bytes
are written only through `pwrite` and `pwritev`, never through a mapping, so that such a layer sees
every write; mappings are read-only.

The methods are thin on purpose: arguments are positional and `OsFiles` binds most names straight to
the functions of `os`, so that a write on the hot path costs no Python frame.
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tidelog.errors import TidelogError

Buffer = bytes | bytearray | memoryview
StrPath = str | Path

TEMPORARY_SUFFIX = ".tmp"


class Files(Protocol):
    """What storage needs of a filesystem. Failures are `OSError`."""

    def open(self, path: StrPath, flags: int, mode: int = 0o644, /) -> int: ...

    def close(self, fd: int, /) -> None: ...

    def pread(self, fd: int, size_bytes: int, position: int, /) -> bytes: ...

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:
        """Writes at `position` and returns how many bytes went out, which may be fewer than given:
        use `write_fully` unless short writes are handled."""
        ...

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, /) -> int: ...

    def ftruncate(self, fd: int, size_bytes: int, /) -> None: ...

    def fallocate(self, fd: int, position: int, size_bytes: int, /) -> None:
        """Reserves space; the file grows to `position + size_bytes` when it is shorter."""
        ...

    def fsync(self, fd: int, /) -> None: ...

    def fdatasync(self, fd: int, /) -> None: ...

    def fstat(self, fd: int, /) -> os.stat_result: ...

    def map(self, fd: int, size_bytes: int, /) -> mmap.mmap:
        """A read-only mapping of the first `size_bytes`, which outlives `fd`."""
        ...

    def stat(self, path: StrPath, /) -> os.stat_result: ...

    def exists(self, path: StrPath, /) -> bool: ...

    def listdir(self, path: StrPath, /) -> list[str]: ...

    def mkdir(self, path: StrPath, /) -> None:
        """Makes the directory and its parents; content when it is there already."""
        ...

    def rmdir(self, path: StrPath, /) -> None: ...

    def rename(self, source: StrPath, target: StrPath, /) -> None:
        """Renames, replacing `target` atomically when it is a file."""
        ...

    def unlink(self, path: StrPath, /) -> None: ...

    def sync_directory(self, path: StrPath, /) -> None:
        """Makes creations, renames and removals in the directory durable."""
        ...

    def disk_usage(self, path: StrPath, /) -> tuple[int, int]:
        """Total and usable bytes of the filesystem that holds `path`."""
        ...


class OsFiles:
    """The operating system's filesystem."""

    __slots__ = ()

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    pwritev = staticmethod(os.pwritev)
    ftruncate = staticmethod(os.ftruncate)
    fallocate = staticmethod(os.posix_fallocate)
    fsync = staticmethod(os.fsync)
    fdatasync = staticmethod(os.fdatasync)
    fstat = staticmethod(os.fstat)
    stat = staticmethod(os.stat)
    exists = staticmethod(os.path.exists)
    rmdir = staticmethod(os.rmdir)
    rename = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)

    def listdir(self, path: StrPath, /) -> list[str]:
        return os.listdir(path)

    def map(self, fd: int, size_bytes: int, /) -> mmap.mmap:
        return mmap.mmap(fd, size_bytes, access=mmap.ACCESS_READ)

    def mkdir(self, path: StrPath, /) -> None:
        os.makedirs(path, exist_ok=True)

    def sync_directory(self, path: StrPath, /) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def disk_usage(self, path: StrPath, /) -> tuple[int, int]:
        usage = shutil.disk_usage(path)
        return usage.total, usage.free


class CorruptFileError(TidelogError):
    """A file of the data directory does not hold what it must; the message names it."""

    def __init__(self, path: StrPath, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = Path(path)
        self.problem = problem


class OpenFile:
    """An open file that closes when the last reference goes.

    A slice that is being sent holds a reference, so that a segment may be deleted while readers
    still have it: the kernel keeps the bytes until the descriptor closes.
    """

    __slots__ = ("__weakref__", "_files", "fd", "path")

    def __init__(self, files: Files, path: StrPath, flags: int) -> None:
        self._files = files
        self.path = str(path)
        self.fd = -1
        self.fd = files.open(self.path, flags | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self.fd

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            self._files.close(fd)

    def __del__(self) -> None:
        self.close()


def write_fully(files: Files, fd: int, data: Buffer, position: int) -> None:
    """Writes all of `data` at `position`, going on after short writes."""
    view = memoryview(data)
    while view:
        written = files.pwrite(fd, view, position)
        view = view[written:]
        position += written


def read_file(files: Files, path: StrPath) -> bytes:
    """The whole content of a (small) file."""
    fd = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = files.fstat(fd).st_size
        parts = []
        position = 0
        while position < size:
            part = files.pread(fd, size - position, position)
            if not part:
                break
            parts.append(part)
            position += len(part)
        return b"".join(parts)
    finally:
        files.close(fd)


def write_file(files: Files, path: StrPath, data: Buffer, *, durable: bool = False) -> None:
    """Creates or overwrites a file with `data`; a crash may leave it torn."""
    fd = files.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    try:
        write_fully(files, fd, data, 0)
        if durable:
            files.fsync(fd)
    finally:
        files.close(fd)


def replace_file(files: Files, path: StrPath, data: Buffer, *, durable: bool = True) -> None:
    """Replaces a file's content: after a crash it holds the old or the new content, never a mix."""
    path = Path(path)
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    write_file(files, temporary, data, durable=durable)
    files.rename(temporary, path)
    if durable:
        files.sync_directory(path.parent)
