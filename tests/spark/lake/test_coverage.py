"""What an archive holds, and which ranges are new to it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.lake.coverage import advance, covered, transactions_of
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.offsets import OffsetRange


def _range(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange("t", partition, start, end)


def test_ranges_that_follow_each_other_become_one() -> None:
    step = advance("t", {}, [_range(0, 10, 20), _range(1, 0, 5), _range(0, 5, 10)])
    assert step.after == {0: (5, 20), 1: (0, 5)}
    assert step.fresh == {_range(0, 5, 10), _range(0, 10, 20), _range(1, 0, 5)}


def test_a_batch_that_ran_before_brings_nothing() -> None:
    before = {0: (5, 20), 1: (0, 5)}
    step = advance("t", before, [_range(0, 10, 20), _range(0, 5, 10)])
    assert (step.after, step.fresh) == (before, frozenset())


def test_a_batch_of_which_one_range_is_there_brings_the_others() -> None:
    step = advance("t", {0: (0, 20)}, [_range(0, 10, 20), _range(1, 3, 9)])
    assert step.after == {0: (0, 20), 1: (3, 9)}
    assert step.fresh == {_range(1, 3, 9)}


def test_a_gap_or_an_overlap_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(LakeError, match=r"t-0 up to offset 20.*begins at 25.*5 offsets"):
        advance("t", {0: (0, 20)}, [_range(0, 25, 30)])
    with pytest.raises(LakeError, match=r"up to offset 20.*brings 15 to 30.*Run this one again"):
        advance("t", {0: (0, 20)}, [_range(0, 15, 30)])
    step = advance("t", {0: (0, 20)}, [_range(0, 25, 30)], gaps_allowed=True)
    assert step.after == {0: (0, 30)}
    assert step.gaps == (_range(0, 20, 25),)


def test_an_empty_partition_is_covered_from_its_place_on() -> None:
    step = advance("t", {}, [_range(2, 7, 7)])
    assert step.after == {2: (7, 7)}
    assert advance("t", step.after, [_range(2, 7, 9)]).after == {2: (7, 9)}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=20), st.randoms())
def test_coverage_survives_its_transactions(
    steps: list[tuple[int, int]], rng: random.Random
) -> None:
    log: dict[str, int] = {}
    expected: dict[int, tuple[int, int]] = {}
    for partition, size in steps:
        start, end = expected.get(partition, (partition * 100, partition * 100))
        wanted = _range(partition, end, end + size)
        before = covered("t", log.get)
        step = advance("t", before, [wanted])
        log |= transactions_of("t", before, step.after)
        expected[partition] = (start, end + size)
        if rng.random() < 0.3:
            assert not advance("t", covered("t", log.get), [wanted]).fresh
    assert covered("t", log.get) == expected
    assert covered("another", log.get) == {}
