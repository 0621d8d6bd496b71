"""The faults of a seed as a list of events, each of which can be left out.

An event has a number, in the order in which events are arranged, and random numbers of its own: the
others stay what they are when it is left out. So a seed that fails can be told with fewer faults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tidelog.testing.simulation.simulation import SECOND_US, Simulation

Strike = Callable[[Random], None]


@dataclass(slots=True, frozen=True)
class FaultEvent:
    """Something that strikes at a time."""

    number: int
    time_us: int
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.number:>3}  {self.time_us / SECOND_US:8.3f} s  {self.who}: {self.what}"


class FaultEvents:
    """The events of one seed."""

    def __init__(self, simulation: Simulation, without: frozenset[int] = frozenset()) -> None:
        self._simulation = simulation
        self._without = without
        self._arranged: list[FaultEvent] = []
        self._count = 0

    def struck(self) -> list[FaultEvent]:
        """Those that have happened, and are not left out."""
        now_us = self._simulation.now_us
        return [event for event in self._arranged if event.time_us <= now_us]

    def at(self, time_us: int, who: str, what: str, strike: Strike) -> None:
        """Arrange an event, unless it is one of those to leave out."""
        number = self._count
        self._count += 1
        if number in self._without:
            return
        self._arranged.append(FaultEvent(number, time_us, who, what))
        random = self._simulation.random(f"fault {number} of {who}")
        self._simulation.at(time_us, lambda: strike(random))
