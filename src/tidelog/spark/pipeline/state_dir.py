"""The folder through which other processes find a running pipeline.

    STATE_ROOT/NAME/run.json      who runs it: process id and when that process was started
                    run.lock      held while it runs, so that it is not started twice
                    status.json   what it does, replaced on progress
                    metrics.prom  the same for Prometheus' text-file collector

A process id is used again by the system some day: a run is taken for alive only if the process with
its id was started at the time that the file says.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tidelog.spark.errors import SparkError
from tidelog.spark.pipeline.status import PipelineStatus, decode_status, encode_status

_CLAIM_TIMEOUT_S = 2.0


def state_root(environment: Mapping[str, str]) -> Path:
    """Where pipelines keep their state unless their file says otherwise."""
    if given := environment.get("TIDELOG_STATE_DIR"):
        return Path(given) / "pipelines"
    home = environment.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home) / "tidelog" / "pipelines"


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process, told apart from a later one with the same id."""

    pid: int
    started: str | None  # as the system counts; None where it does not tell

    def is_alive(self) -> bool:
        return _start_of(self.pid) == self.started if _exists(self.pid) else False


@dataclass(frozen=True, slots=True)
class Found:
    """A pipeline as its folder shows it. `is_running` is false for one that died too."""

    name: str
    process: RunningProcess | None
    status: PipelineStatus | None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive()

    @property
    def phase(self) -> str:
        """What its status says, unless the process is gone without having said so."""
        if self.process is not None and not self.process.is_alive():
            return "dead"
        return self.status.phase if self.status is not None else "starting"


class StateDir:
    """The folder of one pipeline."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Be the one process that runs this pipeline; SparkError if another does."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._lock(lock)
            me = RunningProcess(os.getpid(), _start_of(os.getpid()))
            self._replace("run.json", msgspec.json.encode(me))
            (self.path / "status.json").unlink(missing_ok=True)
            try:
                yield
            finally:
                (self.path / "run.json").unlink(missing_ok=True)
        finally:
            os.close(lock)

    def _lock(self, lock: int) -> None:
        # A process that just ended its drain may still hold it for a moment.
        deadline = time.monotonic() + _CLAIM_TIMEOUT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                process = self.look().process
                by = f" by process {process.pid}" if process else ""
                raise SparkError(
                    f"the pipeline {self.path.name} is run{by} already ({self.path})"
                ) from None
            return

    def write(self, status: PipelineStatus, metrics: str) -> None:
        self._replace("status.json", encode_status(status))
        self._replace("metrics.prom", metrics.encode())

    def look(self) -> Found:
        """What the folder says now; files may change or vanish while it is read."""
        process = status = None
        if (data := self._read("run.json")) is not None:
            try:
                process = msgspec.json.decode(data, type=RunningProcess)
            except msgspec.DecodeError as error:
                raise SparkError(f"{self.path / 'run.json'} cannot be read: {error}") from error
        if (data := self._read("status.json")) is not None:
            status = decode_status(data)
        return Found(self.path.name, process, status)

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def _replace(self, name: str, data: bytes) -> None:
        temporary = self.path / f".{name}.{os.getpid()}"
        temporary.write_bytes(data)
        temporary.replace(self.path / name)


def find_all(root: Path) -> list[Found]:
    """All pipelines under a root that run or have run, by name."""
    if not root.is_dir():
        return []
    found = (StateDir(each).look() for each in sorted(root.iterdir()) if each.is_dir())
    return [each for each in found if each.process is not None or each.status is not None]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _start_of(pid: int) -> str | None:
    """When a process was started, in the words of Linux; None elsewhere, or when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command's name, in parentheses, may hold anything. Fields are counted from its end.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] == "Z" else fields[19]
