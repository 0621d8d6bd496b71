"""Makes a failure smaller: leaves out fault events as long as the seed still fails in the same way.

Halves first, then quarters, down to single events, and over again while that helps. What is left is
not the smallest there is, but none of it can be left out alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.testing.simulation.result import Result

RUNS_MAX = 200
_SHAPE_CHARACTERS = 48

Run = Callable[[frozenset[int]], Result]
"""Runs the seed without some of its fault events."""


@dataclass(slots=True, frozen=True)
class Shrunk:
    """What was found: the run that fails with the fewest faults, and how it came to that."""

    without: frozenset[int]
    result: Result
    runs: int


def shape_of(result: Result) -> str:
    """What a failure is, without the numbers, which are others with other faults."""
    if result.is_good:
        return ""
    last_line = result.failures[0].strip().splitlines()[-1]
    return re.sub(r"b'v\d+'|\d+", "#", last_line)[:_SHAPE_CHARACTERS]


def shrink(
    run: Run,
    *,
    without: frozenset[int] = frozenset(),
    runs_max: int = RUNS_MAX,
    tell: Callable[[str], None] = lambda line: None,
) -> Shrunk:
    """Begins with a run that fails. Raises ValueError when that does not."""
    best = run(without)
    if best.is_good:
        raise ValueError("the seed does not fail, so there is nothing to shrink")
    shape = shape_of(best)
    runs = 1
    size = max(len(best.faults) // 2, 1)
    while best.faults and runs < runs_max:
        numbers = [event.number for event in best.faults]
        helped = False
        for begin in range(0, len(numbers), size):
            chunk = frozenset(numbers[begin : begin + size]) - without
            if not chunk or runs >= runs_max:
                continue
            attempt = run(without | chunk)
            runs += 1
            if shape_of(attempt) == shape:
                without, best, helped = without | chunk, attempt, True
                tell(f"fails without {len(without)} events too, {len(best.faults)} are left")
        if size > 1:
            size //= 2
        elif not helped:
            break
    return Shrunk(without, best, runs)
