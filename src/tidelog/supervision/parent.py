"""A process that ends with the one that started it, however that one ends.

Its standard input is a socket whose other end the parent holds. When that closes, because the
parent closed it or was killed, the process ends as after SIGTERM. One that is stopped (SIGSTOP)
could not see that: the kernel wakes it when its parent dies. Over the same socket the process says
when it is ready.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """From now on this process ends when the other end of its standard input is closed."""
    # SIGCONT: it only wakes a stopped process, and does no harm where a thread of the parent ends,
    # which the kernel takes for the end of the parent.
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    threading.Thread(target=_await_end, name="parent-watch", daemon=True).start()


def tell_ready() -> None:
    """Say that this process serves. A parent that is gone does not hear it."""
    try:
        os.write(sys.stdin.fileno(), b"r")
    except (BrokenPipeError, ConnectionResetError):
        pass  # the watch ends this process


def _await_end() -> None:
    try:
        while os.read(sys.stdin.fileno(), 4096):
            pass
    except ConnectionResetError:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
