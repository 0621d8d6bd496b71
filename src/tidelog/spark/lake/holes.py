"""Offsets within the coverage that the brokers had lost before they could be archived.

An archive that may go on after a data loss leaves a hole: it is kept as a number of holes and two
bounds for each, beside the coverage, so that nobody takes it for offsets without a record.
"""

from collections.abc import Iterable, Sequence

from tidelog.spark.lake.coverage import VersionOf

Hole = tuple[int, int]
"""The offsets `[start, end)`."""


def kept_holes(topic: str, partition: int, version_of: VersionOf) -> list[Hole]:
    """What the log of a table holds for a partition, in the order of offsets."""
    found = []
    for at in range(version_of(_count_id(topic, partition)) or 0):
        start = version_of(_bound_id(topic, partition, at, "start"))
        end = version_of(_bound_id(topic, partition, at, "end"))
        if start is not None and end is not None:
            found.append((start, end))
    return sorted(found)


def hole_transactions(
    topic: str, partition: int, before: Sequence[Hole], new: Iterable[Hole]
) -> dict[str, int]:
    """The application transactions that add holes to those of before."""
    made: dict[str, int] = {}
    count = len(before)
    for start, end in sorted(new):
        made[_bound_id(topic, partition, count, "start")] = start
        made[_bound_id(topic, partition, count, "end")] = end
        count += 1
        made[_count_id(topic, partition)] = count
    return made


def overlapping(holes: Iterable[Hole], start: int, end: int) -> list[Hole]:
    """What holes take of the offsets `[start, end)`."""
    cut = [(max(start, low), min(end, high)) for low, high in holes]
    return [(low, high) for low, high in cut if low < high]


def _count_id(topic: str, partition: int) -> str:
    return f"tidelog/{topic}/{partition}/holes"


def _bound_id(topic: str, partition: int, at: int, bound: str) -> str:
    return f"tidelog/{topic}/{partition}/hole/{at}/{bound}"
