"""A thread that does jobs in order, for disk work that must not hold up the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], None]


class Worker:
    """Runs jobs one after the other on its own thread, or, without a thread, where they come from.

    Without a thread everything happens in one deterministic order, which is what simulations need.
    A job must not raise.
    """

    def __init__(self, name: str, *, threaded: bool = True) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def submit(self, job: Job) -> None:
        if self._thread is None:
            job()
        else:
            self._jobs.put(job)

    def close(self) -> None:
        """Finishes the jobs that were submitted and ends the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
