"""Runs many seeds, on all cores, and adds up what they saw.

Worker processes take ranges of seeds. A seed that raises, goes round in circles or takes too long
has failed, as one with an anomaly has; so has the range of a worker that dies.
"""

from __future__ import annotations

import gc
import logging
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from types import FrameType

from tidelog.testing.simulation.planted_bugs import planted
from tidelog.testing.simulation.result import Result
from tidelog.testing.simulation.scenario import run_seed
from tidelog.testing.simulation.simulation import NoEndInSight

RANGE_SEEDS = 20
"""So many seeds a worker takes at once: few enough for a progress line, many enough to pay."""
WALL_S_MAX = 120.0
_COLLECT_EVERY_SEEDS = 10


RunRange = Callable[..., "Findings"]
"""Runs a range of seeds: `run_range`, or that of another simulator."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that did not end well, or a range of which no one can tell."""

    seed: int
    options: str
    what: list[str]


@dataclass(slots=True)
class Findings:
    """What a range of seeds came to."""

    seeds: int = 0
    events: int = 0
    simulated_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.events += result.events
        self.simulated_s += result.simulated_s
        self.counts.update(result.counts)
        if not result.is_good:
            self.failures.append(Failure(result.seed, result.options, result.failures))

    def merge(self, other: Findings) -> None:
        self.seeds += other.seeds
        self.events += other.events
        self.simulated_s += other.simulated_s
        self.counts.update(other.counts)
        self.failures += other.failures


def run_seed_guarded(
    seed: int,
    *,
    keeps_trace: bool = False,
    bug: str | None = None,
    wall_s_max: float = WALL_S_MAX,
) -> Result:
    """Runs one seed, with a planted bug if one is named, and sees that it ends."""
    with quiet_logging(), planted(bug), time_limit(wall_s_max):
        return run_seed(seed, keeps_trace=keeps_trace)


def run_range(
    seeds: Iterable[int],
    *,
    keep_going: bool = True,
    bug: str | None = None,
    wall_s_max: float = WALL_S_MAX,
) -> Findings:
    """Runs seeds one after the other in this process, up to the first failure or all of them."""
    findings = Findings()
    with collecting_by_hand() as collect:
        for count, seed in enumerate(seeds, 1):
            findings.add(run_seed_guarded(seed, bug=bug, wall_s_max=wall_s_max))
            if findings.failures and not keep_going:
                break
            if count % _COLLECT_EVERY_SEEDS == 0:
                collect()
    return findings


def explore(
    ranges: Iterable[range],
    *,
    jobs: int,
    keep_going: bool = False,
    bug: str | None = None,
    run: RunRange = run_range,
) -> Iterator[Findings]:
    """Runs ranges of seeds in worker processes; yields what each came to, as they come in.

    After a failure the ranges that are under way are finished and no others are begun, unless it
    is to keep going. An interrupt ends it in the same way.
    """
    left = iter(ranges)
    # A fresh interpreter for each: nothing of this process is in a worker that is not in another.
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_parent
    ) as pool:
        under_way: dict[Future[Findings], range] = {}

        def begin_next() -> None:
            seeds = next(left, None)
            if seeds is not None:
                future = pool.submit(run, seeds, keep_going=keep_going, bug=bug)
                under_way[future] = seeds

        for _ in range(jobs + 1):
            begin_next()
        is_over = False
        while under_way:
            try:
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            except KeyboardInterrupt:
                if is_over:
                    raise
                is_over = True
                continue
            for future in done:
                findings = _findings_of(future, under_way.pop(future))
                is_over = is_over or (bool(findings.failures) and not keep_going)
                if not is_over:
                    begin_next()
                yield findings


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _findings_of(future: Future[Findings], seeds: range) -> Findings:
    try:
        return future.result()
    except BrokenProcessPool as error:
        what = f"the worker for seeds {seeds.start}:{seeds.stop} died: {error}"
        return Findings(failures=[Failure(seeds.start, "", [what])])


def ranges_of(first: int, count: int, size: int = RANGE_SEEDS) -> Iterator[range]:
    """So many seeds from the first on, in ranges for workers."""
    for start in range(first, first + count, size):
        yield range(start, min(start + size, first + count))


def ranges_until(first: int, deadline_s: float, size: int = RANGE_SEEDS) -> Iterator[range]:
    """Ranges of seeds from the first on, until the monotonic clock has come to a time; one at
    least."""
    while True:
        yield range(first, first + size)
        first += size
        if time.monotonic() >= deadline_s:
            return


@contextmanager
def collecting_by_hand() -> Iterator[Callable[[], object]]:
    """No garbage collection but when it is asked for.

    A seed makes many objects that live as long as the seed: looking through them again and again
    takes a seventh of the time. Collecting after every seed costs more than after a few of them.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises NoEndInSight, wherever the code is. For the main thread."""

    def out_of_time(_signal: int, _frame: FrameType | None) -> None:
        raise NoEndInSight(f"more than {seconds:g} s for one seed")

    before = signal.signal(signal.SIGALRM, out_of_time)
    began_s = time.monotonic()
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        # Whoever had set the alarm before, as pytest-timeout does, has it again.
        left_s = max(left_s - (time.monotonic() - began_s), 0.001) if left_s else 0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left_s)


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Lines of the logging module are the node's business: keep them off standard error."""
    logger = logging.getLogger("tidelog")
    propagates, logger.propagate = logger.propagate, False
    handler = logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
