"""Work beside the loop: disk work that waits, and work that would hold the interpreter."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from tidelog.world.files import Files

logger = logging.getLogger(__name__)

Job = Callable[[], None]
OnCrash = Callable[[str, BaseException], None]
"""Hears, beside the loop, of an exception that is a bug, with the name of the worker: what the disk
refuses is an `OSError`, which the one who asked for the work deals with. The node is to end."""


class Worker(Protocol):
    """Does jobs one after the other, in the order they were submitted, beside the loop.

    A job hands its result to the loop by the reactor's `post`. What it raises is a bug, of which
    `on_crash` hears. Later jobs still run, so that whoever waits for one does not wait for ever.
    """

    def submit(self, job: Job, /) -> None:
        """From any thread."""
        ...

    def drain(self) -> None:
        """Waits until everything that was submitted is done; not to be called by a job."""
        ...

    def close(self) -> None:
        """Finishes what was submitted and takes no more."""
        ...


def log_crash(worker: str, error: BaseException) -> None:
    """An `OnCrash` for where no node is."""
    logger.critical("%s has failed: %s: %s", worker, type(error).__name__, error, exc_info=error)


NO_RATE_LIMIT = sys.float_info.max  # JSON has no infinity


class RatedTask(Protocol):
    """Work that says how fast it may read and write."""

    @property
    def bytes_per_second_max(self) -> float: ...


Task = TypeVar("Task", bound=RatedTask)
TaskEvent = TypeVar("TaskEvent")
_TaskIn = TypeVar("_TaskIn", bound=RatedTask, contravariant=True)
_EventOut = TypeVar("_EventOut", covariant=True)

IsolatedWork = Callable[[Task, Files, Callable[[int], None]], Iterator[TaskEvent]]
"""`work(task, files, on_bytes)` gives events; it calls `on_bytes` with the sizes of what it reads
and writes, which may hold it up. A function of a module, with annotations, for tasks and events may
go to another process."""


class Isolated(Protocol[_TaskIn, _EventOut]):
    """Does work that would hold up the loop by its work per record, one task after the other."""

    def submit(self, task: _TaskIn, on_event: Callable[[_EventOut], None], /) -> None:
        """`on_event` is called on the loop thread for each event of the task."""
        ...

    def close(self) -> None:
        """Ends at once, in the middle of a task if need be."""
        ...
