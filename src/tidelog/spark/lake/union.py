"""Lake and broker read as one: which of a wanted range comes from where.

A lake that covers `[start, end)` of a partition holds every record that was there, so the cut is
at the coverage's end: below it the lake is asked, above it the broker. The two never overlap, and
whatever the broker has deleted meanwhile does not matter below the cut.
"""

from typing import Literal

from tidelog.spark.offsets import OffsetRange

Where = Literal["lake", "broker"]
Coverage = tuple[int, int] | None
"""The offsets `[start, end)` of one partition that a lake holds without a gap."""


def split_with_lake(wanted: OffsetRange, coverage: Coverage) -> list[tuple[Where, OffsetRange]]:
    """The parts of a range in the order of their offsets; empty parts are left out.

    What lies below the coverage's start was never archived: it is asked from the broker, whose
    data-loss rules then hold.
    """
    if wanted.start >= wanted.end:
        return []
    if coverage is None or coverage[0] >= coverage[1]:
        return [("broker", wanted)]
    start, end = coverage
    low = min(max(start, wanted.start), wanted.end)
    high = max(low, min(end, wanted.end))
    cuts: list[tuple[Where, int, int]] = [
        ("broker", wanted.start, low),
        ("lake", low, high),
        ("broker", high, wanted.end),
    ]
    return [
        (where, OffsetRange(wanted.topic, wanted.partition, begin, stop))
        for where, begin, stop in cuts
        if begin < stop
    ]


def earliest(broker_earliest: int, coverage: Coverage) -> int:
    """The first offset that can be read from lake and broker together without a gap.

    A lake that ends before the broker's first offset does not reach it: the records between are
    gone, and reading begins at the broker's.
    """
    if coverage is None or coverage[0] >= coverage[1] or coverage[1] < broker_earliest:
        return broker_earliest
    return min(coverage[0], broker_earliest)
