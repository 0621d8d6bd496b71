"""The heart of the simulator: one clock, one heap of events, one seed.

Nothing happens but by an event. An event is a callback at a time; events of the same time happen in
the order in which they were arranged. Every delay and fault is drawn from random streams that are
derived from the seed, one for each purpose, so that drawing more for one purpose changes nothing
for the others. The same seed gives the same trace, byte for byte, in any process.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

SECOND_US = 1_000_000
MS_US = 1_000

EVENTS_MAX = 2_000_000
"""A seed has some ten thousand events; one with so many goes round in circles."""
_EVENTS_BETWEEN_QUESTIONS = 16

Callback = Callable[[], None]


class NoEndInSight(BaseException):
    """A seed has had too many events or too much time. Not for the code under test to catch."""


class Event:
    """A callback that is due at a time, unless it is cancelled."""

    __slots__ = ("callback", "time_us")

    def __init__(self, time_us: int, callback: Callback) -> None:
        self.time_us = time_us
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None


class Simulation:
    """Runs events in the order of their time."""

    def __init__(self, seed: int, *, keeps_trace: bool = False) -> None:
        self.seed = seed
        self.now_us = 0
        self.events_run = 0
        self.events_max = EVENTS_MAX
        self.counts: Counter[str] = Counter()
        """What happened how often, by its name: a run in which nothing happened shows nothing."""
        self._heap: list[tuple[int, int, Event]] = []
        self._sequence = 0
        self._digest = hashlib.sha256()
        self.lines: list[str] | None = [] if keeps_trace else None

    def random(self, purpose: str) -> Random:
        """The random numbers of one purpose."""
        return Random(f"{self.seed}/{purpose}")

    def at(self, time_us: int, callback: Callback) -> Event:
        """Arrange an event; a time that has passed means now."""
        event = Event(max(time_us, self.now_us), callback)
        self._sequence += 1
        heappush(self._heap, (event.time_us, self._sequence, event))
        return event

    def after(self, delay_us: int, callback: Callback) -> Event:
        return self.at(self.now_us + delay_us, callback)

    def run_until(self, time_us: int, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Run what is due up to a time, or until `unless` holds, which is asked now and then."""
        heap = self._heap
        while heap and heap[0][0] <= time_us:
            _, _, event = heappop(heap)
            callback = event.callback
            if callback is None:
                continue
            self.now_us = event.time_us
            self.events_run += 1
            if self.events_run > self.events_max:
                raise NoEndInSight(f"more than {self.events_max} events")
            callback()
            if not self.events_run % _EVENTS_BETWEEN_QUESTIONS and unless():
                return
        self.now_us = max(self.now_us, time_us)

    # The story

    def count(self, what: str) -> None:
        """Something happened that a run should show it has seen."""
        self.counts[what] += 1

    def trace(self, who: str, what: str) -> None:
        """Tell what happened; part of what two runs of a seed must agree on."""
        line = f"{self.now_us / SECOND_US:10.6f}  {who:<12} {what}"
        self._digest.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def trace_digest(self) -> str:
        """Of everything traced so far."""
        return self._digest.hexdigest()
