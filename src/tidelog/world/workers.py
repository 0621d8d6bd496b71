"""Work beside the loop: disk work that waits, and work that would hold the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Job = Callable[[], None]


class Worker(Protocol):
    """Does jobs one after the other, in the order they were submitted, beside the loop.

    A job hands its result to the loop by the reactor's `post`. What a job raises is a bug, for a
    job that can fail says so in its result: it ends the node, as `on_crash` sees fit.
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
