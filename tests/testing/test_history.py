"""The history checker finds each anomaly, and nothing in a history that is right."""

import random

import pytest

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.history import (
    AnomalyKind,
    HistoryError,
    Operation,
    Outcome,
    Polled,
    Send,
    check_history,
)

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("orders", 1)


def sent(
    process: str, *pairs: tuple[object, int | None], outcome: Outcome = Outcome.OK
) -> Operation:
    return Operation(process, outcome, sends=[Send(ORDERS, str(v), o) for v, o in pairs])


def polled(process: str, *pairs: tuple[int, object], repositioned: bool = False) -> Operation:
    records = [Polled(ORDERS, offset, str(value)) for offset, value in pairs]
    return Operation(process, polls=[records], repositioned=repositioned)


def kinds(*history: Operation) -> list[AnomalyKind]:
    return [anomaly.kind for anomaly in check_history(history).anomalies]


def test_a_right_history_has_no_anomaly() -> None:
    report = check_history(
        [
            sent("p", ("a", 0), ("b", 1)),
            sent("q", ("c", 2)),
            polled("r", (0, "a"), (1, "b")),
            polled("r", (2, "c")),
            polled("s", (0, "a"), (1, "b"), (2, "c")),
        ]
    )
    assert report.is_valid
    assert (report.sent, report.acknowledged, report.polled) == (3, 3, 6)
    report.raise_for_anomalies()


def test_finds_a_lost_write() -> None:
    assert kinds(sent("p", ("a", 0), ("b", 1), ("c", 2)), polled("r", (0, "a"), (2, "c"))) == [
        AnomalyKind.LOST_WRITE,
        AnomalyKind.INTERNAL_POLL_SKIP,
    ]


def test_finds_an_acknowledged_record_that_nobody_has_seen() -> None:
    assert kinds(sent("p", ("a", 0), ("b", 1)), polled("r", (0, "a"))) == [AnomalyKind.UNSEEN]


def test_a_send_of_unknown_outcome_may_be_there_or_not() -> None:
    assert (
        kinds(sent("p", ("a", None), ("b", None), outcome=Outcome.UNKNOWN), polled("r", (0, "a")))
        == []
    )


def test_finds_a_duplicate() -> None:
    assert kinds(sent("p", ("a", 0)), polled("r", (0, "a"), (1, "a"))) == [AnomalyKind.DUPLICATE]


def test_finds_inconsistent_offsets() -> None:
    assert AnomalyKind.INCONSISTENT_OFFSETS in kinds(
        sent("p", ("a", 0)), sent("q", ("b", 0)), polled("r", (0, "a")), polled("s", (0, "b"))
    )


def test_finds_an_aborted_read() -> None:
    assert kinds(sent("p", ("a", None), outcome=Outcome.FAILED), polled("r", (0, "a"))) == [
        AnomalyKind.ABORTED_READ
    ]


def test_finds_a_read_of_a_transactions_own_writes() -> None:
    transaction = Operation("t", sends=[Send(ORDERS, "a", 0)], polls=[[Polled(ORDERS, 0, "a")]])
    assert kinds(transaction) == [AnomalyKind.PRECOMMITTED_READ]


def test_finds_a_poll_that_skips_between_calls() -> None:
    history = [
        sent("p", ("a", 0), ("b", 1), ("c", 2)),
        polled("r", (0, "a")),
        polled("r", (2, "c")),
        polled("s", (0, "a"), (1, "b"), (2, "c")),
    ]
    assert kinds(*history) == [AnomalyKind.POLL_SKIP]


def test_a_jump_after_a_rebalance_is_no_skip() -> None:
    history = [
        sent("p", ("a", 0), ("b", 1), ("c", 2)),
        polled("r", (0, "a")),
        polled("r", (2, "c"), repositioned=True),
        polled("s", (0, "a"), (1, "b"), (2, "c")),
    ]
    assert kinds(*history) == []


def test_a_gap_that_holds_nothing_is_no_skip() -> None:
    assert kinds(sent("p", ("a", 0), ("b", 7)), polled("r", (0, "a"), (7, "b"))) == []


def test_finds_polls_that_go_back() -> None:
    history = sent("p", ("a", 0), ("b", 1))
    assert kinds(history, polled("r", (0, "a"), (1, "b")), polled("r", (0, "a"), (1, "b"))) == [
        AnomalyKind.NONMONOTONIC_POLL
    ]
    assert kinds(history, polled("r", (0, "a"), (1, "b"), (1, "b"))) == [
        AnomalyKind.INTERNAL_NONMONOTONIC_POLL
    ]


def test_finds_sends_that_go_back() -> None:
    reads = polled("r", (0, "b"), (1, "a"))
    assert kinds(sent("p", ("a", 1)), sent("p", ("b", 0)), reads) == [AnomalyKind.NONMONOTONIC_SEND]
    assert kinds(sent("p", ("a", 1), ("b", 0)), reads) == [AnomalyKind.INTERNAL_NONMONOTONIC_SEND]


def test_partitions_are_apart() -> None:
    operation = Operation("p", sends=[Send(ORDERS, "a", 5), Send(OTHERS, "b", 0)])
    reads = Operation("r", polls=[[Polled(ORDERS, 5, "a"), Polled(OTHERS, 0, "b")]])
    assert kinds(operation, reads) == []


def test_the_error_names_value_offset_and_partition() -> None:
    report = check_history([sent("p", ("a", 4), ("b", 5)), polled("r", (5, "b"))])
    with pytest.raises(HistoryError, match=r"lost write in orders-0: 'a' .* offset 4"):
        report.raise_for_anomalies()
    assert report.of(AnomalyKind.LOST_WRITE) == report.anomalies


def test_large_histories_are_checked_in_passing() -> None:
    rng = random.Random(1)
    history = [sent(f"p{n % 8}", (n, n)) for n in range(20_000)]
    for process in range(3):
        at = 0
        while at < 20_000:
            end = min(20_000, at + rng.randint(1, 500))
            history.append(polled(f"r{process}", *((n, n) for n in range(at, end))))
            at = end
    assert check_history(history).is_valid
