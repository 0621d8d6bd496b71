"""The folder through which other processes find a running pipeline.

    STATE_ROOT/NAME/run.json      who runs it: process id and when that process was started
                    run.lock      held while it runs, so that it is not started twice
                    status.json   what it does, replaced on progress; until the first time what
                                  the run before it did
                    metrics.prom  the same for Prometheus' text-file collector

A process id is used again by the system some day: a run is taken for alive only if the process with
its id was started at the time that the file says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from tidelog.spark.errors import SparkError
from tidelog.spark.pipeline.run.run_lock import Held, holding
from tidelog.spark.pipeline.run.status import PipelineStatus, encode_status

T = TypeVar("T")


def state_root(environment: Mapping[str, str]) -> Path:
    """Where pipelines keep their state unless their file says otherwise."""
    if given := environment.get("TIDELOG_STATE_DIR"):
        return Path(given) / "pipelines"
    home = environment.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if home.startswith("~"):
        raise SparkError(
            "this user has no home folder for the state of pipelines: set state_dir or"
            " the variable TIDELOG_STATE_DIR"
        )
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
    problem: str | None = None  # a file of the folder that cannot be read

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive()

    @property
    def phase(self) -> str:
        """What its status says, unless the process is gone without having said so."""
        if self.problem is not None:
            return "unreadable"
        phase = self.status.phase if self.status is not None else "starting"
        is_over = self.process is None and phase not in ("running", "draining")
        return phase if self.is_running or is_over else "dead"


class StateDir:
    """The folder of one pipeline."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Be the one process that runs this pipeline; SparkError if another does."""
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(holding(self.path / "run.lock"))
                self._begin()
            except Held as held:
                raise SparkError(
                    f"the pipeline {self.path.name} is run{held.by} already ({self.path})"
                ) from None
            except OSError as error:
                raise SparkError(
                    f"the pipeline's status cannot be written to {self.path}: {error.strerror} "
                    f"(state_dir, --state-dir or TIDELOG_STATE_DIR say where)"
                ) from error
            stack.callback((self.path / "run.json").unlink, missing_ok=True)
            yield

    def _begin(self) -> None:
        me = RunningProcess(os.getpid(), _start_of(os.getpid()))
        self._replace("run.json", msgspec.json.encode(me))
        # What a run that was killed left there says that it is up.
        (self.path / "metrics.prom").unlink(missing_ok=True)

    def write(self, status: PipelineStatus, metrics: str) -> None:
        self._replace("status.json", encode_status(status))
        self._replace("metrics.prom", metrics.encode())

    def look(self) -> Found:
        """What the folder says now; files may change or vanish while it is read."""
        process, problem = self._decoded("run.json", RunningProcess)
        status, other_problem = self._decoded("status.json", PipelineStatus)
        if process is not None and status is not None and status.pid != process.pid:
            status = None  # of the run before this one
        return Found(self.path.name, process, status, problem or other_problem)

    def _decoded(self, name: str, kind: type[T]) -> tuple[T | None, str | None]:
        """What a file holds, or why it cannot be read; neither if there is none."""
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=kind), None
        except FileNotFoundError:
            return None, None
        except OSError as error:
            return None, f"{self.path / name} cannot be read: {error.strerror}"
        except msgspec.DecodeError as error:
            return None, f"{self.path / name} cannot be read: {error}"

    def _replace(self, name: str, data: bytes) -> None:
        temporary = self.path / f".{name}.{os.getpid()}"
        temporary.write_bytes(data)
        temporary.replace(self.path / name)


def find_all(root: Path) -> list[Found]:
    """All pipelines under a root that run or have run, by name."""
    if not root.is_dir():
        return []
    found = (StateDir(each).look() for each in sorted(root.iterdir()) if each.is_dir())
    return [each for each in found if each.process or each.status or each.problem]


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
