"""Which offsets of which partitions an archive holds.

Coverage is kept where the data is committed: as application transactions of the table's log, a
start, an end and the number of partitions for each topic. A Delta log carries these through
checkpoints and through the commits of any other writer, and they change in the same commit as the
files. They are also what makes an archive exactly-once: a range that is covered already is not
added again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidelog.spark.lake.errors import LakeError
from tidelog.spark.offsets import OffsetRange

VersionOf = Callable[[str], int | None]
"""The version that a table's log holds for an application id."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What new ranges do to a topic's coverage: those that are fresh, and the coverage after.

    `gaps` are the offsets before fresh ranges that no range brings.
    """

    fresh: frozenset[OffsetRange]
    after: Mapping[int, tuple[int, int]]
    gaps: tuple[OffsetRange, ...] = ()


def covered(topic: str, version_of: VersionOf) -> dict[int, tuple[int, int]]:
    """A topic's coverage by partition, from the transactions of a table's log."""
    found = {
        partition: covered_range(topic, partition, version_of)
        for partition in range(version_of(_partitions_id(topic)) or 0)
    }
    return {partition: bounds for partition, bounds in found.items() if bounds is not None}


def covered_range(topic: str, partition: int, version_of: VersionOf) -> tuple[int, int] | None:
    """The coverage of one partition."""
    start = version_of(_bound_id(topic, partition, "start"))
    end = version_of(_bound_id(topic, partition, "end"))
    return None if start is None or end is None else (start, end)


def advance(
    topic: str,
    before: Mapping[int, tuple[int, int]],
    ranges: Iterable[OffsetRange],
    *,
    gaps_allowed: bool = False,
) -> Advance:
    """Add ranges of one topic to its coverage.

    A range that the coverage holds already is not fresh: its batch ran before. A range that leaves
    a gap or overlaps the coverage's end in part is an error, because then this is not the archive's
    own next batch. `gaps_allowed` is for archives that may go on after the broker lost records.
    """
    after = dict(before)
    fresh = set()
    gaps: list[OffsetRange] = []
    for each in sorted(ranges, key=lambda each: (each.partition, each.start)):
        start, end = after.get(each.partition, (each.start, each.start))
        known = each.partition in after
        if known and each.end <= end:
            continue
        if each.start < end:
            raise LakeError(
                f"the lake holds {topic}-{each.partition} up to offset {end}, and this batch "
                f"brings {each.start} to {each.end}: another archive of the topic writes to this "
                "lake at the same time. Run this one again: it goes on where the lake ends"
            )
        if each.start > end and not gaps_allowed:
            raise LakeError(
                f"the lake holds {topic}-{each.partition} up to offset {end}, and this batch "
                f"begins at {each.start}: {each.start - end} offsets would be missing. Run this "
                "archive again: it goes on where the lake ends"
            )
        if each.start > end:
            gaps.append(OffsetRange(topic, each.partition, end, each.start))
        after[each.partition] = (start, each.end)
        fresh.add(each)
    return Advance(frozenset(fresh), after, tuple(gaps))


def transactions_of(
    topic: str, before: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]]
) -> dict[str, int]:
    """The application transactions that turn one coverage of a topic into another."""
    made = {}
    if max(after, default=-1) > max(before, default=-1):
        made[_partitions_id(topic)] = max(after) + 1
    for partition, (start, end) in after.items():
        if before.get(partition) != (start, end):
            made[_bound_id(topic, partition, "start")] = start
            made[_bound_id(topic, partition, "end")] = end
    return made


def _partitions_id(topic: str) -> str:
    return f"tidelog/{topic}/partitions"


def _bound_id(topic: str, partition: int, bound: str) -> str:
    return f"tidelog/{topic}/{partition}/{bound}"
