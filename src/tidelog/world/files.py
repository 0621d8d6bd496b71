"""The filesystem as a node sees it.

Every filesystem call of the storage layer goes through a `Files`. The operating system's is
`tidelog.world.operating_system.files`; `tidelog.testing` has those that cut the power, fill the
disk and break it. Bytes are written only through `pwrite` and `pwritev`, never through a mapping,
so that such a layer sees every write; mappings are read-only.

Arguments are positional, so that an implementation can bind most names straight to the functions
of `os` and a write on the hot path costs no Python frame.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

Buffer = bytes | bytearray | memoryview
StrPath = str | Path


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

    def map(self, fd: int, size_bytes: int, /) -> mmap.mmap | bytes:
        """The first `size_bytes` for reading, which outlive `fd`. To be dropped before that part
        of the file is cut or written again."""
        ...

    def stat(self, path: StrPath, /) -> os.stat_result: ...

    def exists(self, path: StrPath, /) -> bool:
        """OSError when that cannot be told: what cannot be read is not missing."""
        ...

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

    def lock(self, path: StrPath, /) -> int:
        """Makes the file if need be and locks it, until the descriptor closes or the process ends.

        Raises BlockingIOError while another process, or another descriptor, has the lock.
        """
        ...
