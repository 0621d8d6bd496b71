"""Delays by the second in which they ended."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Second:
    """What arrived in one second of the demo, and how long it had taken."""

    at_s: int
    count: int
    p50_ms: float
    p99_ms: float


def by_second(delays: Iterable[tuple[int, int]], began_ms: int) -> list[Second]:
    """From pairs (when it was complete, when it arrived), in milliseconds."""
    seconds: dict[int, list[int]] = defaultdict(list)
    for complete_ms, arrived_ms in delays:
        seconds[(arrived_ms - began_ms) // 1000].append(arrived_ms - complete_ms)
    return [
        Second(at_s, len(found), percentile(found, 50), percentile(found, 99))
        for at_s, found in sorted(seconds.items())
    ]


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of them do not exceed (nearest rank); 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return float(ordered[max(0, int(rank) - 1)])
