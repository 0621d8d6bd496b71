"""Locks by which a pipeline is run, and a checkpoint used, by one process at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TIMEOUT_S = 2.0


class Held(Exception):
    """Somebody else has the lock; `pid` is who, if that is known."""

    def __init__(self, pid: int | None) -> None:
        super().__init__(pid)
        self.pid = pid

    @property
    def by(self) -> str:
        return f" by process {self.pid}" if self.pid is not None else ""


@contextmanager
def holding(file: Path) -> Iterator[None]:
    """Have the lock of a file, which holds our process id meanwhile; Held if another has it."""
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _take(lock)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)


def _take(lock: int) -> None:
    # A process that just ended its drain may still hold it for a moment.
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            holder = os.pread(lock, 20, 0).decode(errors="replace")
            raise Held(int(holder) if holder.isdigit() else None) from None
        return
