"""What filters leave to be read."""

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.source.push_down import narrow

OFFSET, PARTITION, TOPIC, TIMESTAMP = ("offset",), ("partition",), ("topic",), ("timestamp",)
WHOLE = OffsetRange("orders", 3, 0, 20)

COMPARISONS: dict[Any, Callable[[int, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, bounds: value in bounds,
}
bounds = st.integers(-3, 23)
comparisons = st.builds(
    lambda kind, column, value: kind(column, value),
    st.sampled_from([each for each in COMPARISONS if each is not In]),
    st.sampled_from([OFFSET, PARTITION]),
    bounds,
) | st.builds(In, st.sampled_from([OFFSET, PARTITION]), st.lists(bounds, min_size=1, max_size=3))


def passes(each: Any, offset: int, partition: int) -> bool:
    return COMPARISONS[type(each)](offset if each.attribute == OFFSET else partition, each.value)


@given(st.lists(comparisons, max_size=4))
def test_no_row_that_passes_is_left_out(filters: list[Filter]) -> None:
    narrowed = narrow(filters)
    kept = narrowed.clip(WHOLE)
    for offset in range(WHOLE.start, WHOLE.end):
        if all(passes(each, offset, WHOLE.partition) for each in filters):
            assert narrowed.keeps(WHOLE.name)
            assert kept.start <= offset < kept.end


def test_offsets_bound_ranges() -> None:
    filters = [IsNotNull(OFFSET), GreaterThan(OFFSET, 4), LessThanOrEqual(OFFSET, 9)]
    assert narrow(filters).clip(WHOLE) == OffsetRange("orders", 3, 5, 10)
    assert narrow([In(OFFSET, (7, 3))]).clip(WHOLE) == OffsetRange("orders", 3, 3, 8)
    assert narrow([EqualTo(OFFSET, 50)]).clip(WHOLE).size == 0


def test_partitions_and_topics_are_left_out() -> None:
    def kept(*filters: Filter) -> bool:
        return narrow(filters).keeps(TopicPartition("orders", 3))

    assert kept(EqualTo(PARTITION, 3), In(TOPIC, ("orders", "x")))
    assert not kept(EqualTo(PARTITION, 2))
    assert not kept(In(PARTITION, (0, 1)))
    assert not kept(EqualTo(TOPIC, "order"))
    assert kept(StringStartsWith(TOPIC, "ord"), StringEndsWith(TOPIC, "s"))
    assert not kept(StringStartsWith(TOPIC, "x"))
    assert not kept(StringContains(TOPIC, "x"))


def test_times_bound_from_below_only() -> None:
    moment = datetime(2024, 5, 1, 12, 0, 0, 1500, tzinfo=UTC)
    ms = 1714564800001
    assert narrow([GreaterThan(TIMESTAMP, moment)]).timestamp_ms_min == ms
    assert narrow([GreaterThanOrEqual(TIMESTAMP, moment)]).timestamp_ms_min == ms
    elsewhere = moment.astimezone(timezone(timedelta(hours=5)))
    assert narrow([EqualTo(TIMESTAMP, elsewhere)]).timestamp_ms_min == ms
    later = moment + timedelta(seconds=1)
    assert narrow([In(TIMESTAMP, (later, moment))]).timestamp_ms_min == ms
    both = [GreaterThan(TIMESTAMP, moment), GreaterThan(TIMESTAMP, later)]
    assert narrow(both).timestamp_ms_min == ms + 1000
    assert narrow([LessThan(TIMESTAMP, moment)]).timestamp_ms_min is None
    # Nobody can be asked for records from before 1970, and there may be some.
    early = datetime(1969, 12, 31, tzinfo=UTC)
    assert narrow([GreaterThanOrEqual(TIMESTAMP, early)]).timestamp_ms_min is None


def test_what_is_not_understood_narrows_nothing() -> None:
    filters = [
        Not(EqualTo(PARTITION, 3)),
        EqualTo(("value",), b"x"),
        EqualTo(PARTITION, None),
        In(OFFSET, (None, 3)),
        EqualTo(("offset", "inner"), 3),
        GreaterThan(TOPIC, "z"),
    ]
    narrowed = narrow(filters)
    assert narrowed.keeps(WHOLE.name)
    assert narrowed.clip(WHOLE) == WHOLE
