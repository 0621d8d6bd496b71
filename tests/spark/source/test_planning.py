"""Ranges, splits and limits, decided from offsets alone."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.source.planning import (
    limit_rate,
    plan_batch,
    plan_stream,
    split_ranges,
    unsettled,
    waiting,
)

A, B, C = (TopicPartition("t", at) for at in range(3))

sizes = st.lists(st.integers(0, 10_000), min_size=1, max_size=8)


def ranges_of(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", at, 100 * at, 100 * at + size) for at, size in enumerate(sizes)]


@given(sizes, st.none() | st.integers(1, 50), st.none() | st.integers(1, 500))
def test_splitting_leaves_nothing_out(
    sizes: list[int], parts_min: int | None, size_max: int | None
) -> None:
    whole = ranges_of(sizes)
    parts = split_ranges(whole, parts_min, size_max)
    assert all(each.size > 0 for each in parts)
    for each in whole:
        mine = [part for part in parts if part.partition == each.partition]
        assert sum(part.size for part in mine) == each.size
        bounds = sorted((part.start, part.end) for part in mine)
        assert all(first[1] == second[0] for first, second in pairwise(bounds))
    if size_max is not None:
        assert all(part.size <= size_max for part in parts)


def test_one_task_for_each_partition_unless_asked() -> None:
    whole = ranges_of([10, 0, 20])
    assert split_ranges(whole, None, None) == [whole[0], whole[2]]
    assert split_ranges(whole, 2, None) == [whole[0], whole[2]]


def test_large_ranges_are_split_first() -> None:
    parts = split_ranges(ranges_of([1000, 10, 10]), 6, None)
    assert [each.size for each in parts] == [250, 250, 250, 250, 10, 10]


def test_more_parts_are_made_where_the_size_alone_gives_too_few() -> None:
    parts = split_ranges(ranges_of([100]), 8, 50)
    assert len(parts) == 8


@given(
    st.dictionaries(st.sampled_from([A, B, C]), st.tuples(st.integers(0, 50), st.integers(0, 500))),
    st.integers(1, 600),
)
def test_a_limit_is_kept_and_lets_all_partitions_move(
    places: dict[TopicPartition, tuple[int, int]], offsets_max: int
) -> None:
    start = {name: first for name, (first, _) in places.items()}
    end = {name: first + size for name, (first, size) in places.items()}
    limited = limit_rate(start, end, offsets_max)
    assert limited.keys() == end.keys()
    assert all(start[name] <= limited[name] <= end[name] for name in end)
    assert waiting(start, limited) <= offsets_max + len(places)
    if waiting(start, end) <= offsets_max:
        assert limited == end
    assert all(limited[name] > start[name] for name in end if end[name] > start[name])


def test_a_limit_is_shared_out_by_size() -> None:
    assert limit_rate({A: 0, B: 0}, {A: 900, B: 100}, 100) == {A: 90, B: 10}


def test_a_stream_goes_from_start_to_end() -> None:
    plan = plan_stream({A: 5, B: 7}, {A: 9, B: 7}, {})
    assert plan.ranges == [OffsetRange("t", 0, 5, 9)]
    assert not plan.losses


def test_new_partitions_are_read_from_their_beginning() -> None:
    start, end = {A: 5}, {A: 5, B: 3}
    assert unsettled(start, end) == {B}
    plan = plan_stream(start, end, {B: 0})
    assert plan.ranges == [OffsetRange("t", 1, 0, 3)]
    assert not plan.losses
    late = plan_stream(start, end, {B: 2})
    assert late.ranges == [OffsetRange("t", 1, 2, 3)]
    assert late.losses == ["the new partition t-1 begins at offset 2 instead of 0"]


def test_a_partition_that_is_gone_is_a_loss() -> None:
    plan = plan_stream({A: 5, B: 7}, {A: 6}, {})
    assert plan.ranges == [OffsetRange("t", 0, 5, 6)]
    assert plan.losses == ["t-1 is gone; it was read up to offset 7"]


def test_a_partition_that_was_made_anew_is_read_from_its_beginning() -> None:
    start, end = {A: 50}, {A: 3}
    assert unsettled(start, end) == {A}
    plan = plan_stream(start, end, {A: 1})
    assert plan.ranges == [OffsetRange("t", 0, 1, 3)]
    assert plan.losses == ["t-0 was read up to offset 50 and ends at 3 now"]


def test_reading_goes_on_at_the_end_of_a_topic_that_was_cut() -> None:
    plan = plan_stream({A: 50, B: 1}, {A: 40, B: 2}, {A: 0}, lambda topic: topic == "t")
    assert plan.ranges == [OffsetRange("t", 1, 1, 2)]
    assert plan.losses == ["t-0 was read up to offset 50 and ends at 40 now"]


def test_batches_leave_out_what_is_empty() -> None:
    assert plan_batch({A: 1, B: 4, C: 9}, {A: 3, B: 4, C: 2}) == [OffsetRange("t", 0, 1, 3)]
