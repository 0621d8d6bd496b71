"""Lake and broker as one: no gap, no overlap."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.lake.union import earliest, split_with_lake
from tidelog.spark.offsets import OffsetRange

offsets = st.integers(0, 60)
coverages = st.none() | st.tuples(offsets, offsets).map(lambda pair: (min(pair), max(pair)))


@given(start=offsets, end=offsets, coverage=coverages)
def test_every_offset_comes_from_exactly_one_place(
    start: int, end: int, coverage: tuple[int, int] | None
) -> None:
    parts = split_with_lake(OffsetRange("t", 3, start, end), coverage)
    read = [offset for _, part in parts for offset in range(part.start, part.end)]
    assert read == list(range(start, end))
    for where, part in parts:
        assert (part.topic, part.partition) == ("t", 3)
        assert part.size > 0
        for offset in range(part.start, part.end):
            is_covered = coverage is not None and coverage[0] <= offset < coverage[1]
            assert (where == "lake") == is_covered


@given(broker_earliest=offsets, coverage=coverages)
def test_from_the_earliest_on_nothing_is_missing(
    broker_earliest: int, coverage: tuple[int, int] | None
) -> None:
    first = earliest(broker_earliest, coverage)
    assert first <= broker_earliest
    parts = split_with_lake(OffsetRange("t", 0, first, 100), coverage)
    assert all(part.start >= broker_earliest for where, part in parts if where == "broker")
    if coverage is not None and coverage[0] < coverage[1] and coverage[1] >= broker_earliest:
        assert first == min(coverage[0], broker_earliest)


def test_a_lake_serves_what_the_broker_has_deleted() -> None:
    assert earliest(50, (10, 50)) == 10
    assert earliest(0, (10, 50)) == 0
    assert earliest(51, (10, 50)) == 51
    assert split_with_lake(OffsetRange("t", 0, 20, 80), (10, 50)) == [
        ("lake", OffsetRange("t", 0, 20, 50)),
        ("broker", OffsetRange("t", 0, 50, 80)),
    ]
