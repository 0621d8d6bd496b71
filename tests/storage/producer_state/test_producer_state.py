from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.storage.producer_state.producer_state import (
    BatchMetadata,
    ProducerState,
    ProducerStates,
)
from tidelog.storage.segment.transaction_index import AbortedTransaction

PRODUCER = 7


def batch(
    states: ProducerStates,
    offset: int,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    producer: int = PRODUCER,
    transactional: bool = False,
    timestamp: int = 1000,
) -> None:
    last_offset = offset + count - 1
    states.note_batch(producer, epoch, sequence, offset, last_offset, timestamp, transactional)


def check(
    states: ProducerStates, sequence: int, count: int = 1, *, epoch: int = 0
) -> BatchMetadata | None:
    state = states.get(PRODUCER) or ProducerState(PRODUCER)
    return state.check_batch(epoch, sequence, count, is_transactional=False, is_client=True)


def error_of(states: ProducerStates, sequence: int, count: int = 1, *, epoch: int = 0) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        check(states, sequence, count, epoch=epoch)
    return caught.value.code


def test_a_producer_nobody_knows_may_start_anywhere() -> None:
    assert check(ProducerStates(), 41) is None


def test_batches_must_follow_each_other() -> None:
    states = ProducerStates()
    batch(states, 0, 0, 3)
    assert check(states, 3) is None
    assert error_of(states, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert error_of(states, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_known_as_a_duplicate() -> None:
    states = ProducerStates()
    for number in range(7):
        batch(states, 100 + number * 2, number * 2, 2, timestamp=number)
    for number in range(2, 7):
        duplicate = check(states, number * 2, 2)
        assert duplicate is not None
        assert duplicate.first_offset == 100 + number * 2
        assert duplicate.last_offset == 101 + number * 2
        assert duplicate.timestamp_ms == number
    assert error_of(states, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_with_other_borders_is_no_duplicate() -> None:
    states = ProducerStates()
    batch(states, 0, 0, 4)
    assert error_of(states, 0, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_after_the_largest_int() -> None:
    states = ProducerStates()
    batch(states, 0, 2**31 - 2, 2)
    assert check(states, 0) is None
    batch(states, 2, 2**31 - 1, 3)
    duplicate = check(states, 2**31 - 1, 3)
    assert duplicate is not None
    assert duplicate.first_sequence == 2**31 - 1
    assert duplicate.last_sequence == 1
    assert check(states, 2) is None


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero() -> None:
    states = ProducerStates()
    batch(states, 0, 0, epoch=3)
    assert error_of(states, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert error_of(states, 1, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert check(states, 0, epoch=4) is None
    batch(states, 1, 0, epoch=4)
    assert error_of(states, 0, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    duplicate = check(states, 0, epoch=4)
    assert duplicate is not None
    assert duplicate.first_offset == 1


def test_a_coordinator_is_checked_by_epoch_only() -> None:
    state = ProducerState(PRODUCER, 3)
    assert state.check_batch(3, -1, 1, is_transactional=True, is_client=False) is None
    with pytest.raises(ApiError) as caught:
        state.check_batch(2, -1, 1, is_transactional=True, is_client=False)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    states = ProducerStates()
    batch(states, 10, 0, transactional=True)
    batch(states, 11, 1, transactional=True)
    batch(states, 12, 0, transactional=True, producer=8)
    assert states.first_unstable_offset == 10
    assert states.has_ongoing_transaction(PRODUCER, 0)
    assert states.note_marker(PRODUCER, 0, 0, 13, 1000, is_commit=True) is None
    assert states.first_unstable_offset == 12
    assert not states.has_ongoing_transaction(PRODUCER, 0)
    aborted = states.note_marker(8, 0, 0, 14, 1000, is_commit=False)
    assert aborted == AbortedTransaction(8, 12, 14, 15)
    assert states.first_unstable_offset is None


def test_an_abort_says_what_the_last_stable_offset_became() -> None:
    states = ProducerStates()
    batch(states, 10, 0, transactional=True)
    batch(states, 11, 0, transactional=True, producer=8)
    assert states.note_marker(8, 0, 0, 12, 0, is_commit=False) == (8, 11, 12, 10)
    assert states.note_marker(PRODUCER, 0, 0, 13, 0, is_commit=False) == (PRODUCER, 10, 13, 14)


def test_a_marker_without_records_leaves_no_trace_in_the_index() -> None:
    states = ProducerStates()
    assert states.note_marker(PRODUCER, 0, 0, 5, 0, is_commit=False) is None


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    states = ProducerStates()
    batch(states, 0, 0, transactional=True)
    assert error_of(states, 1) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_the_same_epoch_keeps_the_sequence_and_a_raised_one_restarts_it() -> None:
    states = ProducerStates()
    batch(states, 0, 0, transactional=True)
    states.note_marker(PRODUCER, 0, 0, 1, 0, is_commit=True)
    assert check(states, 1) is None
    states.note_marker(PRODUCER, 1, 0, 2, 0, is_commit=True)
    assert check(states, 0, epoch=1) is None
    assert error_of(states, 1, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(
    ("marker_epoch", "coordinator_epoch", "version", "expected"),
    [
        (4, 2, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (5, 2, 1, None),
        (6, 2, 1, None),
        (6, 1, 1, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (4, 2, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (5, 2, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (6, 2, 2, None),
    ],
)
def test_markers_are_checked_by_the_rules_of_their_transaction_version(
    marker_epoch: int, coordinator_epoch: int, version: int, expected: ErrorCode | None
) -> None:
    state = ProducerState(
        PRODUCER, producer_epoch=5, coordinator_epoch=2, transaction_first_offset=3
    )
    if expected is None:
        state.check_marker(marker_epoch, coordinator_epoch, version)
    else:
        with pytest.raises(ApiError) as caught:
            state.check_marker(marker_epoch, coordinator_epoch, version)
        assert caught.value.code is expected


def test_a_marker_may_be_repeated_when_no_transaction_was_begun_since() -> None:
    ProducerState(PRODUCER, producer_epoch=5).check_marker(5, 0, 2)


def test_silent_producers_are_forgotten_but_not_those_with_an_open_transaction() -> None:
    states = ProducerStates()
    batch(states, 0, 0, timestamp=1000)
    batch(states, 1, 0, producer=8, timestamp=1000, transactional=True)
    batch(states, 2, 0, producer=9, timestamp=1500)
    states.remove_expired(1999, 1000)
    assert len(states) == 3
    states.remove_expired(2000, 1000)
    assert {state.producer_id for state in states.active()} == {8, 9}


@dataclass
class Model:
    """What a log must answer to one producer, told by the whole history of its batches."""

    history: list[tuple[int, int, int, int]] = field(default_factory=list)
    end_offset: int = 0

    def expect(self, epoch: int, sequence: int, count: int) -> int | ErrorCode | None:
        """None: append; a number: the first offset of the original; else the error."""
        if not self.history:
            return None
        current = self.history[-1][0]
        recent = [entry for entry in self.history if entry[0] == current][-5:]
        if epoch == current:
            for _, first, length, offset in recent:
                if (first, length) == (sequence, count):
                    return offset
        if epoch < current:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        last = recent[-1]
        expected = (last[1] + last[2]) % 2**31 if epoch == current else 0
        return None if sequence == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def note(self, epoch: int, sequence: int, count: int) -> None:
        self.history.append((epoch, sequence, count, self.end_offset))
        self.end_offset += count


@given(
    start=st.sampled_from([0, 5, 2**31 - 4]),
    calls=st.lists(
        st.tuples(st.integers(-1, 1), st.integers(-8, 3), st.integers(1, 3)), max_size=60
    ),
)
def test_answers_agree_with_the_whole_history(
    start: int, calls: list[tuple[int, int, int]]
) -> None:
    states, model = ProducerStates(), Model()
    epoch, next_sequence = 5, start
    for epoch_step, back, count in calls:
        sent_epoch = epoch + epoch_step
        sequence = 0 if epoch_step > 0 else (next_sequence + min(back, 0)) % 2**31
        expected = model.expect(sent_epoch, sequence, count)
        if isinstance(expected, ErrorCode):
            assert error_of(states, sequence, count, epoch=sent_epoch) is expected
            continue
        duplicate = check(states, sequence, count, epoch=sent_epoch)
        if duplicate is not None:
            assert duplicate.first_offset == expected
            continue
        assert expected is None
        batch(states, model.end_offset, sequence, count, epoch=sent_epoch)
        model.note(sent_epoch, sequence, count)
        epoch, next_sequence = sent_epoch, (sequence + count) % 2**31
