"""A node in a process of its own: `tidelog up` with settings, and its output in a file."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_LAST_WORDS_BYTES = 2_000


class NodeProcess:
    """A node that was started and that ends, at the latest, when this process does.

    Its output is appended to `output`. It takes settings from `settings` only, not from the
    environment.
    """

    def __init__(self, settings: Mapping[str, str], output: Path, *, join: str = "") -> None:
        self._output = output
        self._is_ready = False
        command = [sys.executable, "-m", "tidelog", "up", "--quiet", "--supervised"]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        if join:
            command += ["--join", join]
        self._channel, inherited = socket.socketpair()
        self._channel.setblocking(False)
        with inherited, output.open("ab") as log:
            self._output_start = log.tell()
            self._process = subprocess.Popen(
                command,
                stdin=inherited.fileno(),
                stdout=log,
                stderr=log,
                # Ctrl-C is for whoever supervises: a node is told by SIGTERM.
                start_new_session=True,
                env={key: value for key, value in os.environ.items() if not _is_setting(key)},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs, and negative for a signal."""
        return self._process.poll()

    @property
    def is_ready(self) -> bool:
        """Whether it has said that clients can connect."""
        if not self._is_ready and self._channel.fileno() >= 0:
            try:
                self._is_ready = bool(self._channel.recv(1))
            except (BlockingIOError, ConnectionResetError):
                pass
        return self._is_ready

    @property
    def last_words(self) -> str:
        """The end of what it has printed."""
        with self._output.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._output_start, size - _LAST_WORDS_BYTES))
            return log.read().decode(errors="replace").strip()

    def terminate(self) -> None:
        """Ask it to shut down cleanly; a node that is paused goes on to do so."""
        self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9; it is gone when this returns."""
        self._process.kill()
        self._process.wait()
        self._channel.close()

    def wait(self, timeout_s: float) -> int | None:
        """The exit status, None when it still runs after this time."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._channel.close()
        return status


def _is_setting(name: str) -> bool:
    return name.startswith("TIDELOG_")
