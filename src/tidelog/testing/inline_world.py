"""A world for tests of the layers below the network: everything happens where it is asked for.

Jobs run at once on the calling thread and the clock stands until a test moves it, so a test sees
one order of events. Random numbers, which make ids, are the same again only with a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import NoReturn, TextIO, TypeVar

from tidelog.world.files import Files
from tidelog.world.operating_system.files import OsFiles
from tidelog.world.workers import Job, OnCrash, Worker

Item = TypeVar("Item")
Result = TypeVar("Result")


class InlineWorld:
    """A `World` without a network and without other processes."""

    def __init__(
        self, files: Files | None = None, *, now_ms: int = 0, seed: int | None = None
    ) -> None:
        self.files: Files = files or OsFiles()
        self.random = Random(seed)
        self.now_ms = now_ms
        self.log_stream: TextIO | None = None

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        return self.now_ms

    def busy_ns(self) -> int:
        return self.now_ms * 1_000_000

    def reachable_host(self, host: str) -> str:
        return host

    def start_worker(self, name: str, on_crash: OnCrash) -> Worker:
        return InlineWorker()

    def side_by_side(
        self, work: Callable[[Item], Result], items: Iterable[Item], *, threads: int
    ) -> Iterator[Result]:
        return map(work, items)

    def give_way(self) -> None:
        pass

    def make_lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def _not_here(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("an inline world has no network and no other processes")

    make_poller = listen = listen_locally = connect = start_isolated = _not_here


class InlineWorker:
    """Runs each job when it is submitted; those that a job submits come after it."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []

    def submit(self, job: Job, /) -> None:
        self._jobs.append(job)
        if len(self._jobs) > 1:
            return
        try:
            while self._jobs:
                self._jobs[0]()
                del self._jobs[0]
        except BaseException:
            self._jobs.clear()
            raise

    def drain(self) -> None:
        pass

    def close(self) -> None:
        pass
