"""The operating system's filesystem."""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil

from tidelog.world.files import StrPath


class OsFiles:
    """A `Files` of bound functions: no Python frame where none is needed."""

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
    rmdir = staticmethod(os.rmdir)
    rename = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)

    def exists(self, path: StrPath, /) -> bool:
        # os.path.exists says False to every error: a disk that fails would look like an empty one.
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

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

    def lock(self, path: StrPath, /) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd
