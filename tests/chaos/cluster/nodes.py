"""The nodes of a cluster: processes on hosts of their own, with disks and clocks of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.chaos.cluster.clocks import WallClock
from tests.chaos.cluster.disks import Disk
from tests.chaos.cluster.hosts import Host
from tests.chaos.cluster.servers import Server

_STOP_TIMEOUT_S = 30.0
_LAST_WORDS_BYTES = 3_000


class Node:
    """One node. A fault lane uses it from its thread alone, and the runner when all are done."""

    def __init__(
        self,
        node_id: int,
        host: Host,
        disk: Disk,
        clock: WallClock,
        server: Server,
        output: Path,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.disk = disk
        self.clock = clock
        self.server = server
        self.output = output
        self.is_paused = False
        self._process: subprocess.Popen[bytes] | None = None
        server.prepare(node_id, disk.path)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ended_by_itself(self) -> int | None:
        """The exit status of a process that nobody has ended."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        if self.is_running:
            return
        command = self.server.command(self.node_id, self.disk.path)
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [*self.host.prefix, *command.arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **self.clock.environment(), **command.environment},
            )

    def kill(self) -> None:
        """kill -9; it is gone when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self.is_paused = False

    def pause(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            self.is_paused = True

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def stop(self) -> bool:
        """Ask it to shut down cleanly; False when it had to be killed."""
        if self._process is None:
            return True
        self.resume()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._process = None
        return True

    def cut_power(self) -> None:
        """The process and all that its disk has not synced are gone at one moment."""
        self.pause()
        self.disk.cut_power()
        self.kill()

    def last_words(self) -> str:
        if not self.output.exists():
            return ""
        with self.output.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
            return file.read().decode(errors="replace").strip()
