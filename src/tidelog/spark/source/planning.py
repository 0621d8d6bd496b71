"""What a query reads, decided from offsets alone: no broker and no Spark is asked here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.offsets import OffsetRange, Offsets


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The ranges of a micro-batch, and what is known to be lost, in words."""

    ranges: list[OffsetRange]
    losses: list[str]


def unsettled(start: Offsets, end: Offsets) -> set[TopicPartition]:
    """Partitions whose first offset must be asked: those that are new, and those made anew."""
    return {name for name, last in end.items() if name not in start or start[name] > last}


def plan_stream(
    start: Offsets,
    end: Offsets,
    earliest: Offsets,
    is_same: Callable[[str], bool] = lambda topic: False,
) -> StreamPlan:
    """The ranges from `start` to `end`; `earliest` is known for those that are unsettled.

    New partitions are read from their earliest offset. A partition whose end moved back was cut by
    an unclean election if the topic `is_same` as before, and reading goes on at its new end;
    otherwise it was deleted and made anew, and is read from its earliest offset.
    """
    ranges, losses = [], []
    for name in sorted(start.keys() - end.keys()):
        losses.append(f"{name} is gone; it was read up to offset {start[name]}")
    for name in sorted(end):
        first = start.get(name)
        if first is None:
            first = earliest.get(name, end[name])
            if first > 0:
                losses.append(f"the new partition {name} begins at offset {first} instead of 0")
        elif first > end[name]:
            losses.append(f"{name} was read up to offset {first} and ends at {end[name]} now")
            first = end[name] if is_same(name.topic) else earliest.get(name, end[name])
        if first < end[name]:
            ranges.append(OffsetRange(name.topic, name.partition, first, end[name]))
    return StreamPlan(ranges, losses)


def plan_batch(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """The ranges that are not empty."""
    return [
        OffsetRange(name.topic, name.partition, start[name], end[name])
        for name in sorted(start.keys() & end.keys())
        if start[name] < end[name]
    ]


def waiting(start: Offsets, end: Offsets) -> int:
    """How many offsets there are to read."""
    return sum(max(0, last - start.get(name, 0)) for name, last in end.items())


def limit_rate(start: Offsets, end: Offsets, offsets_max: int) -> Offsets:
    """An end so near that about `offsets_max` are read, shared out by what waits in each partition.

    A partition that has something always moves, so the sum may be above the limit by one offset
    for each partition.
    """
    sizes = {name: last - start[name] for name, last in end.items() if last > start.get(name, last)}
    total = sum(sizes.values())
    if total <= offsets_max:
        return dict(end)
    limited = dict(end)
    for name, size in sizes.items():
        share = offsets_max * size / total
        limited[name] = start[name] + min(size, ceil(share) if share < 1 else floor(share))
    return limited


def split_ranges(
    ranges: Iterable[OffsetRange], parts_min: int | None, size_max: int | None
) -> list[OffsetRange]:
    """Cut ranges so that none spans more than `size_max` and there are about `parts_min` of them.

    Large ranges are cut first: those whose share of the whole is a single part stay as they are.
    """
    parts = [each for each in ranges if each.size > 0]
    if size_max is not None:
        parts = [piece for each in parts for piece in _cut(each, ceil(each.size / size_max))]
    if parts_min is None or parts_min <= len(parts):
        return parts
    total = sum(each.size for each in parts)
    large = [each for each in parts if _share(each.size, total, parts_min) > 1]
    large_total = sum(each.size for each in large)
    large_parts_min = max(1, parts_min - (len(parts) - len(large)))
    whole = set(parts) - set(large)
    return [
        piece
        for each in parts
        for piece in _cut(
            each, 1 if each in whole else _share(each.size, large_total, large_parts_min)
        )
    ]


def _share(size: int, total: int, parts: int) -> int:
    return max(1, floor(size / total * parts + 0.5))


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Equal parts; none is empty."""
    parts = min(parts, whole.size)
    bounds = [whole.start + whole.size * at // parts for at in range(parts + 1)]
    return [
        OffsetRange(whole.topic, whole.partition, first, last) for first, last in pairwise(bounds)
    ]
