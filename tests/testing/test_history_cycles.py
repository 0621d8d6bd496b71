"""Cycles between operations: what each kind of dependency is, and which cycles Kafka forbids."""

import pytest

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.history import (
    AnomalyKind,
    Operation,
    Outcome,
    Polled,
    Send,
    check_history,
)
from tidelog.testing.history_cycles import CycleKind, Dependency, find_cycles

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)
ALL = frozenset(Dependency)


def transaction(
    process: str,
    *,
    sends: list[tuple[TopicPartition, str, int | None]] | None = None,
    polls: list[tuple[TopicPartition, str, int]] | None = None,
    outcome: Outcome = Outcome.OK,
    reads_uncommitted: bool = False,
) -> Operation:
    return Operation(
        process,
        outcome,
        sends=[Send(tp, value, offset) for tp, value, offset in sends or ()],
        polls=[[Polled(tp, offset, value) for tp, value, offset in polls or ()]],
        reads_uncommitted=reads_uncommitted,
    )


def kinds(*history: Operation, dependencies: frozenset[Dependency] = ALL) -> list[CycleKind]:
    return [cycle.kind for cycle in find_cycles(history, dependencies=dependencies)]


def test_transactions_that_read_each_other_are_a_cycle() -> None:
    one = transaction("p", sends=[(A, "a", 0)], polls=[(B, "b", 0)])
    other = transaction("q", sends=[(B, "b", 0)], polls=[(A, "a", 0)])
    assert kinds(one, other, dependencies=frozenset({Dependency.WR})) == [CycleKind.G1C]
    (anomaly,) = check_history([one, other]).of(AnomalyKind.CYCLE)
    assert "G1c: 'p' (operation 0) --wr orders-0--> 'q' (operation 1) --wr orders-1--> 'p'" in str(
        anomaly
    )


def test_a_chain_of_reads_is_none() -> None:
    first = transaction("p", sends=[(A, "a", 0)])
    second = transaction("q", sends=[(B, "b", 0)], polls=[(A, "a", 0)])
    third = transaction("r", polls=[(A, "a", 0), (B, "b", 0)])
    assert kinds(first, second, third) == []
    assert check_history([first, second, third]).is_valid


@pytest.mark.parametrize("reads_uncommitted", [False, True])
def test_readers_of_open_transactions_may_go_round(reads_uncommitted: bool) -> None:
    one = transaction(
        "p", sends=[(A, "a", 0)], polls=[(B, "b", 0)], reads_uncommitted=reads_uncommitted
    )
    other = transaction("q", sends=[(B, "b", 0)], polls=[(A, "a", 0)])
    assert bool(check_history([one, other]).of(AnomalyKind.CYCLE)) is not reads_uncommitted


def test_a_client_that_sees_what_it_sends_later_is_a_cycle() -> None:
    early = transaction("p", polls=[(A, "a", 0)])
    late = transaction("p", sends=[(A, "a", 0)])
    (cycle,) = find_cycles([early, late])
    assert cycle.kind is CycleKind.G1C
    assert {edge.dependency for edge in cycle.edges} == {Dependency.PROCESS, Dependency.WR}


def test_interleaved_writes_are_a_cycle_that_kafka_allows() -> None:
    one = transaction("p", sends=[(A, "a1", 0), (B, "b1", 1)])
    other = transaction("q", sends=[(A, "a2", 1), (B, "b2", 0)])
    assert kinds(one, other) == [CycleKind.G0]
    history = [one, other, transaction("r", polls=[(A, "a1", 0), (A, "a2", 1)])]
    history.append(transaction("s", polls=[(B, "b2", 0), (B, "b1", 1)]))
    assert check_history(history).is_valid


def test_a_read_before_a_write_counts_by_what_comes_next() -> None:
    """p has read A up to 0 and not what q sends; q has read B up to 0 and not what p sends."""
    early = transaction("w", sends=[(A, "a0", 0), (B, "b0", 0)])
    one = transaction("p", sends=[(B, "b1", 1)], polls=[(A, "a0", 0)])
    other = transaction("q", sends=[(A, "a1", 1)], polls=[(B, "b0", 0)])
    assert kinds(early, one, other) == [CycleKind.G2]


def test_one_read_before_a_write_closes_a_cycle() -> None:
    """p has read what q sent to A, and in B not yet what q sent there."""
    early = transaction("w", sends=[(B, "b0", 0)])
    other = transaction("q", sends=[(A, "a1", 0), (B, "b1", 1)])
    one = transaction("p", polls=[(A, "a1", 0), (B, "b0", 0)])
    assert kinds(early, other, one) == [CycleKind.G_SINGLE]


def test_only_the_highest_offset_of_an_operation_counts() -> None:
    """Transactions interleave: who sent before and after another comes after it."""
    one = transaction("p", sends=[(A, "a0", 0), (A, "a2", 2)])
    other = transaction("q", sends=[(A, "a1", 1)])
    assert kinds(one, other) == []
    reader = transaction("r", polls=[(A, "a0", 0), (A, "a1", 1)])
    assert kinds(one, other, reader, dependencies=frozenset({Dependency.WR})) == []


def test_the_offset_of_a_send_may_be_known_from_a_poll() -> None:
    one = transaction("p", sends=[(A, "a", None)], polls=[(B, "b", 0)], outcome=Outcome.UNKNOWN)
    other = transaction("q", sends=[(B, "b", -1)], polls=[(A, "a", 0)], outcome=Outcome.UNKNOWN)
    assert kinds(one, other, dependencies=frozenset({Dependency.WR})) == [CycleKind.G1C]


def test_what_failed_is_part_of_no_cycle() -> None:
    one = transaction("p", sends=[(A, "a", 0)], polls=[(B, "b", 0)], outcome=Outcome.FAILED)
    other = transaction("q", sends=[(B, "b", 0)], polls=[(A, "a", 0)])
    report = check_history([one, other])
    assert report.of(AnomalyKind.CYCLE) == []
    assert report.of(AnomalyKind.ABORTED_READ)


def test_the_shortest_cycle_is_told() -> None:
    parts = [TopicPartition("orders", number) for number in range(6)]
    ring = [
        transaction(
            f"p{number}",
            sends=[(parts[number], f"v{number}", 0)],
            polls=[(parts[number - 1], f"v{(number - 1) % 6}", 0)],
        )
        for number in range(6)
    ]
    ring[0].polls[0].append(Polled(parts[1], 0, "v1"))
    (cycle,) = find_cycles(ring)
    assert len(cycle.edges) == 2
