"""Filters of a batch query that narrow what is read.

Only what is certain is used, and every filter is left to Spark as well: a range that is too wide
costs time, never a wrong answer. Records of a partition are not ordered by timestamp, so a lower
bound by time can be turned into an offset (before the first record that is as new there is none),
and an upper bound cannot.
"""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.offsets import OffsetRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET_MAX = 2**63 - 1

_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, values: value in values,
}
_TEXT_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    In: lambda value, values: value in values,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What a conjunction of filters leaves: tests of the partition, and bounds."""

    tests: tuple[Callable[[TopicPartition], bool], ...] = ()
    offset_min: int = 0
    offset_end: int = _OFFSET_MAX
    timestamp_ms_min: int | None = None

    def keeps(self, name: TopicPartition) -> bool:
        """Whether the partition can hold rows that pass."""
        return all(test(name) for test in self.tests)

    def clip(self, wanted: OffsetRange) -> OffsetRange:
        """The part of a range that can hold rows that pass; it may be empty."""
        start = max(wanted.start, self.offset_min)
        end = max(start, min(wanted.end, self.offset_end))
        return OffsetRange(wanted.topic, wanted.partition, start, end)


def narrow(filters: Iterable[Filter]) -> Narrowing:
    """What can be concluded from filters of which every one holds."""
    narrowed = Narrowing()
    for each in filters:
        attribute, value = getattr(each, "attribute", None), getattr(each, "value", None)
        if attribute == ("topic",):
            narrowed = _with_test(narrowed, each, _TEXT_COMPARISONS, str, lambda name: name.topic)
        elif attribute == ("partition",):
            narrowed = _with_test(narrowed, each, _COMPARISONS, int, lambda name: name.partition)
        elif attribute == ("offset",):
            low, high = _interval(each, int, value)
            narrowed = replace(
                narrowed,
                offset_min=max(narrowed.offset_min, 0 if low is None else low),
                offset_end=min(narrowed.offset_end, _OFFSET_MAX if high is None else high + 1),
            )
        elif attribute == ("timestamp",):
            oldest, _ = _interval(each, datetime, value)
            # Brokers take negative times for questions of another kind.
            if oldest is not None and oldest >= _EPOCH:
                known = narrowed.timestamp_ms_min
                oldest_ms = _milliseconds(oldest)
                narrowed = replace(
                    narrowed,
                    timestamp_ms_min=oldest_ms if known is None else max(known, oldest_ms),
                )
    return narrowed


def _with_test(
    narrowed: Narrowing,
    of: Filter,
    comparisons: dict[type[Filter], Callable[[Any, Any], bool]],
    kind: type,
    part: Callable[[TopicPartition], object],
) -> Narrowing:
    compare, value = comparisons.get(type(of)), getattr(of, "value", None)
    if compare is None or not _is_all(kind, value):
        return narrowed
    return replace(narrowed, tests=(*narrowed.tests, lambda name: compare(part(name), value)))


def _is_all(kind: type, value: object) -> bool:
    """Whether a value, or each of several, is of a kind that can be compared."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(each, kind) for each in value)
    return isinstance(value, kind)


def _interval(of: Filter, kind: type, value: Any) -> tuple[Any, Any]:
    """The least and the greatest value that pass; None where there is no such bound."""
    if not _is_all(kind, value):
        return None, None
    if isinstance(of, In):
        return min(value), max(value)
    if isinstance(of, (EqualTo, EqualNullSafe)):
        return value, value
    if isinstance(of, (GreaterThan, GreaterThanOrEqual)):
        above = isinstance(of, GreaterThan) and kind is int
        return value + 1 if above else value, None
    if isinstance(of, (LessThan, LessThanOrEqual)):
        below = isinstance(of, LessThan) and kind is int
        return None, value - 1 if below else value
    return None, None


def _milliseconds(moment: datetime) -> int:
    """Since 1970, rounded down."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)
