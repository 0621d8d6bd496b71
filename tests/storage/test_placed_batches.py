from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.log_making import NOW_MS, make_batch
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import TimestampType, check_crc, iterate_headers
from tidelog.storage.placed_batches import check_replicated, place
from tidelog.storage.segment.segment import RELATIVE_OFFSET_MAX


def joined(*batches: memoryview) -> memoryview:
    return memoryview(bytearray(b"".join(batches)))


def replicated(base_offset: int) -> memoryview:
    return make_batch(2, base_offset=base_offset, leader_epoch=3)


def test_batches_are_placed_one_after_the_other() -> None:
    batches = joined(make_batch(3), make_batch(2))
    placed = place(batches, list(iterate_headers(batches)), 10, 4, None)
    assert [(h.base_offset, h.next_offset) for h in placed.headers] == [(10, 13), (13, 15)]
    assert (placed.first_offset, placed.next_offset, placed.leader_epoch) == (10, 15, 4)
    assert [header for _, header in iterate_headers(batches)] == placed.headers


def test_append_time_takes_the_place_of_the_records_times() -> None:
    batches = joined(make_batch(3, timestamp=5), make_batch(2, timestamp=6))
    placed = place(batches, list(iterate_headers(batches)), 0, 0, NOW_MS)
    assert placed.max_timestamp_ms == NOW_MS
    for at, header in iterate_headers(batches):
        check_crc(batches, at, header.size_bytes)
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize(
    "batches",
    [replicated(6), joined(replicated(7), replicated(8))],
    ids=["below the log end", "not rising"],
)
def test_a_follower_refuses_offsets_that_go_back(batches: memoryview) -> None:
    with pytest.raises(ApiError) as caught:
        check_replicated(batches, 7)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_refuses_damaged_batches_and_none() -> None:
    damaged = replicated(7)
    damaged[-1] ^= 1
    for batches in (damaged, memoryview(b"")):
        with pytest.raises(ApiError) as caught:
            check_replicated(batches, 7)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@given(gaps=st.lists(st.sampled_from([0, 1, RELATIVE_OFFSET_MAX, 2**33]), min_size=1, max_size=8))
def test_runs_fit_segments_and_leave_nothing_out(gaps: list[int]) -> None:
    parts, offset = [], 0
    for gap in gaps:
        offset += gap
        parts.append(replicated(offset))
        offset += 2
    placed = check_replicated(joined(*parts), 0)
    runs = list(placed.fitting_segments())
    assert [header for run in runs for header in run.headers] == placed.headers
    assert b"".join(run.batches for run in runs) == placed.batches
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        assert run.next_offset - 1 - run.first_offset <= RELATIVE_OFFSET_MAX
        if following is not None:
            reached = following.headers[0].last_offset - run.first_offset
            assert reached > RELATIVE_OFFSET_MAX
