"""Files of the data directory: opened, read and replaced as a whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tidelog.errors import TidelogError
from tidelog.world.files import Buffer, Files, StrPath

TEMPORARY_SUFFIX = ".tmp"
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a full disk says, of which nothing is broken: the same may be tried again later."""


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
