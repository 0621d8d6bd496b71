"""Work beside the loop on threads, which wait for the disk and release the interpreter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import TypeVar

from tidelog.world.workers import Job, OnCrash

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerThread:
    """A `Worker` on a thread of its own."""

    def __init__(self, name: str, on_crash: OnCrash) -> None:
        self._name = name
        self._on_crash = on_crash
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.submit = self._jobs.put
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def drain(self) -> None:
        done = threading.Event()
        self._jobs.put(done.set)
        done.wait()

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException as error:  # noqa: BLE001  whatever it is, the node has to know
                self._on_crash(self._name, error)


def side_by_side(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """Results in the order in which they come; what the work raises is raised here."""
    with ThreadPoolExecutor(threads, thread_name_prefix="tidelog-pool") as pool:
        for future in as_completed([pool.submit(work, item) for item in items]):
            yield future.result()
