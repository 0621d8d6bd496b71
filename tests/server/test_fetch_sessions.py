"""Incremental fetch sessions."""

from random import Random

import pytest

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.fetch import FetchData, FetchedPartition, FetchPartition
from tidelog.server.fetch_sessions import FetchContext, FetchSessions


def _request(
    session_id: int,
    epoch: int,
    partitions: list[int] | None = None,
    forgotten: list[int] | None = None,
    offset: int = 0,
) -> FetchData:
    data = FetchData((-1, 0, 1, 1000, 0, session_id, epoch), [], [], "")
    if partitions:
        data.topics = [
            ("topic", [FetchPartition(index, -1, offset, -1, -1, 1000) for index in partitions])
        ]
    if forgotten:
        data.forgotten = [("topic", forgotten)]
    return data


def _wanted(context: FetchContext, data: FetchData) -> list[int]:
    return [cached.wanted.partition for _, cached in context.wanted(data)]


def _sent(context: FetchContext, *rows: FetchedPartition) -> list[int]:
    sent = context.rows_to_send([("topic", row) for row in rows])
    return [row.partition for _, row in sent]


def test_without_a_session_everything_is_in_the_request() -> None:
    sessions = FetchSessions(10, 0, Random(1))
    data = _request(0, -1, [0, 1])
    context = sessions.open(data, False, 0)
    assert context.session_id == 0
    assert _wanted(context, data) == [0, 1]
    assert _sent(context, FetchedPartition(0), FetchedPartition(1)) == [0, 1]
    assert len(sessions) == 0


def test_a_session_answers_only_what_is_new() -> None:
    sessions = FetchSessions(10, 0, Random(1))
    data = _request(0, 0, [0, 1, 2])
    context = sessions.open(data, False, 0)
    session_id = context.session_id
    assert session_id > 0
    rows = [FetchedPartition(index, 0, 5, 5, 0) for index in range(3)]
    assert _sent(context, *rows) == [0, 1, 2]

    context = sessions.open(_request(session_id, 1), False, 1)
    assert _wanted(context, _request(0, -1)) == [0, 1, 2]
    assert _sent(context, *rows) == []

    context = sessions.open(_request(session_id, 2), False, 2)
    higher = FetchedPartition(1, 0, 6, 6, 0)
    assert _sent(context, rows[0], higher, rows[2]) == [1]

    context = sessions.open(_request(session_id, 3), False, 3)
    failed = FetchedPartition(2, 3)
    assert _sent(context, rows[0], higher, failed) == [2]
    context = sessions.open(_request(session_id, 4), False, 4)
    # After an error the row comes again even though its offsets are those of before.
    assert _sent(context, rows[0], higher, rows[2]) == [2]


def test_a_session_takes_over_changes_and_forgets() -> None:
    sessions = FetchSessions(10, 0, Random(1))
    session_id = sessions.open(_request(0, 0, [0, 1]), False, 0).session_id
    data = _request(session_id, 1, [2], forgotten=[0], offset=7)
    context = sessions.open(data, False, 0)
    assert _wanted(context, data) == [1, 2]
    context = sessions.open(_request(session_id, 2, [1], offset=9), False, 0)
    wanted = context.wanted(_request(0, -1))
    assert [cached.wanted.fetch_offset for _, cached in wanted] == [9, 7]
    context = sessions.open(_request(session_id, 3, forgotten=[1, 2]), False, 0)
    assert context.session_id == 0
    assert len(sessions) == 0


def test_partitions_that_had_records_are_read_last_next_time() -> None:
    sessions = FetchSessions(10, 0, Random(1))
    context = sessions.open(_request(0, 0, [0, 1, 2]), False, 0)
    rows = [
        FetchedPartition(0, 0, 5, 5, 0, b"x", 1),
        FetchedPartition(1, 0, 5, 5, 0),
        FetchedPartition(2, 0, 5, 5, 0),
    ]
    _sent(context, *rows)
    context = sessions.open(_request(context.session_id, 1), False, 0)
    assert _wanted(context, _request(0, -1)) == [1, 2, 0]


@pytest.mark.parametrize(
    ("session_id", "epoch", "topic_ids", "code"),
    [
        (-1, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 3, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_wrong_session_is_refused(
    session_id: int, epoch: int, topic_ids: bool, code: ErrorCode
) -> None:
    sessions = FetchSessions(10, 0, Random(1))
    made = sessions.open(_request(0, 0, [0]), False, 0).session_id
    with pytest.raises(ApiError) as raised:
        sessions.open(_request(session_id or made, epoch), topic_ids, 0)
    assert raised.value.code == code


def test_a_final_epoch_ends_the_session() -> None:
    sessions = FetchSessions(10, 0, Random(1))
    session_id = sessions.open(_request(0, 0, [0]), False, 0).session_id
    data = _request(session_id, -1, [0])
    context = sessions.open(data, False, 0)
    assert context.session_id == 0
    assert _wanted(context, data) == [0]
    assert len(sessions) == 0


def test_epochs_wrap_around() -> None:
    sessions = FetchSessions(10, 0, Random(1))
    context = sessions.open(_request(0, 0, [0]), False, 0)
    assert context.session is not None
    context.session.epoch = 2**31 - 1
    sessions.open(_request(context.session_id, 2**31 - 1), False, 0)
    assert context.session.epoch == 1


def test_slots_are_limited_and_go_to_who_needs_them() -> None:
    sessions = FetchSessions(2, 100, Random(1))
    first = sessions.open(_request(0, 0, [0]), False, 0).session_id
    second = sessions.open(_request(0, 0, [0, 1]), False, 0).session_id
    assert sessions.open(_request(0, 0, [0]), False, 50).session_id == 0
    # The second is used on, the first not: it goes when it was unused for long enough.
    sessions.open(_request(second, 1), False, 90)
    third = sessions.open(_request(0, 0, [0]), False, 120).session_id
    assert third > 0
    with pytest.raises(ApiError):
        sessions.open(_request(first, 1), False, 120)
    # Both in use: a bigger session takes the place of a smaller one that had its time.
    sessions.open(_request(second, 2), False, 130)
    bigger = sessions.open(_request(0, 0, [0, 1, 2]), False, 140).session_id
    assert bigger > 0
    with pytest.raises(ApiError):
        sessions.open(_request(second, 3), False, 140)
    assert sessions.evicted == 2
