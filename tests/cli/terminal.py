"""A command on a terminal of its own, which a test reads and types at."""

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidelog.testing import Broker

_WAIT_S = 120.0
_LINES, _COLUMNS = 24, 80

# A session that has no terminal takes the first that it asks for. What a shell runs in the
# background ignores interrupts, and hands that on.
_COMMAND = """
import fcntl, signal, termios
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)
from tidelog.cli import main
main()
"""


class Terminal:
    """24 lines of 80 characters, as most begin with."""

    def __init__(self, process: "subprocess.Popen[bytes]", screen_fd: int) -> None:
        self._process = process
        self._screen_fd = screen_fd
        self._output = b""

    @property
    def text(self) -> str:
        """All that was written so far, without colours and movements."""
        written = self._output.decode(errors="replace").replace("\r\n", "\n")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)

    @property
    def shows_cursor(self) -> bool:
        return self._output.rfind(b"\x1b[?25h") > self._output.rfind(b"\x1b[?25l")

    def read_until(self, is_there: Callable[[str], object]) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not is_there(self.text):
            assert time.monotonic() < deadline, self.text
            assert self._process.poll() is None, self.text
            self._read(0.2)

    def ctrl_c(self) -> int:
        """Type it, as a person does: the terminal interrupts all processes. The exit status."""
        os.write(self._screen_fd, b"\x03")
        deadline = time.monotonic() + _WAIT_S
        # Somebody has to read a terminal, or what writes to it cannot end.
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._read(0.2)
        while self._read(0):
            pass
        return self._process.returncode

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._screen_fd], [], [], wait_s)[0]:
            return False
        try:
            data = os.read(self._screen_fd, 65_536)
        except OSError:  # the terminal's other end is closed
            return False
        self._output += data
        return bool(data)


@contextmanager
def on_terminal(broker: Broker, *arguments: str) -> Iterator[Terminal]:
    """`tidelog` in a session of its own, in front of a terminal; it does not outlive the block."""
    screen_fd, command_fd = pty.openpty()
    termios.tcsetwinsize(command_fd, (_LINES, _COLUMNS))
    decided = ("COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR")
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *arguments],
        stdin=command_fd,
        stdout=command_fd,
        stderr=command_fd,
        start_new_session=True,
        env={
            **{name: value for name, value in os.environ.items() if name not in decided},
            "TIDELOG_BOOTSTRAP": broker.bootstrap_servers,
            "TERM": "xterm",
        },
    )
    os.close(command_fd)
    try:
        yield Terminal(process, screen_fd)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(screen_fd)
