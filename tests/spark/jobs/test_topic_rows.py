"""Where jobs begin and end."""

import pytest

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.jobs.topic_rows import Bound, bounded, common

_NAME = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (Bound(), Bound(), (10, 100)),
        (Bound(offset=20), Bound(offset=30), (20, 30)),
        (Bound(offset=0), Bound(offset=1000), (10, 100)),
        (Bound(offset=50), Bound(offset=40), (50, 50)),
        (Bound(tail=5), Bound(), (95, 100)),
        (Bound(), Bound(tail=5), (10, 95)),
        (Bound(tail=500), Bound(tail=0), (10, 100)),
        (Bound(timestamp_ms=1), Bound(timestamp_ms=2), (33, 66)),
    ],
)
def test_bounds_are_brought_to_what_there_is(
    start: Bound, end: Bound, expected: tuple[int, int]
) -> None:
    found = bounded({_NAME: (10, 100)}, start, end, {_NAME: 33}, {_NAME: 66})
    assert found == {_NAME: expected}


def test_a_time_after_all_records_is_the_end() -> None:
    extent = {_NAME: (10, 100)}
    later = Bound(timestamp_ms=99)
    assert bounded(extent, later, Bound(), {_NAME: -1}, {}) == {_NAME: (100, 100)}
    assert bounded(extent, Bound(), later, {}, {}) == {_NAME: (10, 100)}


def test_common_ranges_are_those_of_both() -> None:
    other, third = TopicPartition("t", 1), TopicPartition("t", 2)
    one = {_NAME: (0, 10), other: (0, 5), third: (0, 5)}
    two = {_NAME: (5, 20), other: (5, 9)}
    assert common(one, two) == {_NAME: (5, 10)}
