"""A thread that does jobs in order, for disk work that must not hold up the event loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

logger = logging.getLogger(__name__)

Job = Callable[[], None]
OnCrash = Callable[[str, BaseException], None]
"""Hears on a background thread, with its name, of an exception that is a bug: what the disk refuses
is an `OSError`, which the one who asked for the work deals with. The node is to end."""


def log_crash(thread: str, error: BaseException) -> None:
    """What is done about a bug where no node is."""
    logger.critical("%s has failed: %s: %s", thread, type(error).__name__, error, exc_info=error)


class Worker:
    """Runs jobs one after the other on its own thread, or, without a thread, where they come from.

    Without a thread everything happens in one deterministic order, which is what simulations need.
    A job that raises is a bug: `on_crash` hears of it. Later jobs still run, so that whoever waits
    for one of them does not wait for ever.
    """

    def __init__(self, name: str, *, threaded: bool = True, on_crash: OnCrash = log_crash) -> None:
        self._name = name
        self._on_crash = on_crash
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
            try:
                job()
            except BaseException as error:  # noqa: BLE001  whatever it is, the node has to know
                self._on_crash(self._name, error)
