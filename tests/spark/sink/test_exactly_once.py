"""A micro-batch lands once, wherever a run of it was cut off."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.spark.sink.committed import WAIT_S, assert_committed, committed_values
from tests.spark.sink.query import Parts, Query, kinds, rows
from tidelog.spark.errors import OptionError, SparkError
from tidelog.spark.sink import part
from tidelog.spark.sink.markers import MARKER_PLACE, Decision, Markers
from tidelog.spark.sink.messages import Prepared
from tidelog.spark.sink.transaction import ONGOING, OpenTransaction, Transactions

BATCH: Parts = {
    0: [f"a{number}" for number in range(40)],
    1: ["b0"],
    2: [],
    3: [f"d{number}" for number in range(7)],
}
ALL = [value for values in BATCH.values() for value in values]
AGAIN = ["AlreadyCommitted", "AlreadyCommitted", "Written", "AlreadyCommitted"]


@pytest.fixture
def values(query: Query) -> list[str]:
    """What is in the topic before the batch that the test is about, which is batch 1."""
    earlier = {0: ["e0", "e1"], 1: ["f0"]}
    query.run(0, earlier)
    return [value for some in earlier.values() for value in some]


def check(query: Query, expected: list[str]) -> None:
    assert query.options.topic is not None
    assert_committed(query.options.bootstrap, query.options.topic, expected)


def now_committed(query: Query) -> list[str]:
    assert query.options.topic is not None
    return committed_values(query.options.bootstrap, query.options.topic)


def test_a_batch_that_runs_again_is_there_once(query: Query, values: list[str]) -> None:
    assert kinds(query.run(1, BATCH)) == ["Prepared", "Prepared", "Written", "Prepared"]
    check(query, values + ALL)
    for _ in range(2):
        query.start_again()
        assert kinds(query.run(1, BATCH)) == AGAIN
        assert kinds(query.run(0, {0: ["e0"], 1: ["f0"]})) == AGAIN[:2]
    query.run(2, {1: ["last"]})
    check(query, [*values, *ALL, "last"])


def test_a_crash_before_the_decision_leaves_nothing(query: Query, values: list[str]) -> None:
    query.write(1, BATCH)
    check(query, values)
    query.start_again()
    assert kinds(query.run(1, BATCH)) == ["Prepared", "Prepared", "Written", "Prepared"]
    check(query, values + ALL)


def test_a_crash_in_the_middle_of_a_task(query: Query, values: list[str]) -> None:
    def break_off() -> Iterator[pa.RecordBatch]:
        yield rows(["torn"])
        raise ValueError("the worker breaks")

    with pytest.raises(ValueError, match="breaks"):
        query.write_part(1, 0, break_off())
    # The next attempt is made by the same process, as often as not.
    query.run(1, BATCH)
    check(query, values + ALL)


def test_after_the_decision_everything_goes_forward(query: Query, values: list[str]) -> None:
    query.decide(query.write(1, BATCH), 1)
    assert now_committed(query) == sorted(values)
    query.start_again()
    assert kinds(query.run(1, BATCH)) == AGAIN
    check(query, values + ALL)


def test_a_crash_when_some_parts_are_committed(query: Query, values: list[str]) -> None:
    messages = query.write(1, BATCH)
    query.decide(messages, 1)
    assert isinstance(messages[1], Prepared)
    with query.brokers() as brokers:
        assert not Transactions(brokers).end([messages[1].transaction], commit=True)
    query.start_again()
    # The rows come in other portions now, which is all the same: they are in the topic.
    assert kinds(query.run(1, {0: ALL[:20], 2: ALL[20:]})) == ["AlreadyCommitted"] * 2
    check(query, values + ALL)


def test_a_part_that_is_lost_after_the_decision_is_written_again(
    query: Query, values: list[str]
) -> None:
    query.decide(query.write(1, BATCH), 1)
    with query.brokers() as brokers:
        # An attempt from before the crash wakes up.
        Transactions(brokers).init(query.transactional_id(0), 60_000)
    query.start_again()
    messages = query.write(1, BATCH)
    assert kinds(messages) == ["Prepared", "AlreadyCommitted", "Written", "AlreadyCommitted"]
    # The driver dies once more at the same place, and the part is lost once more.
    query.abort(messages, 1)
    query.start_again()
    messages = query.run(1, BATCH)
    assert kinds(messages) == ["Prepared", "AlreadyCommitted", "Written", "AlreadyCommitted"]
    query.start_again()
    assert kinds(query.run(1, BATCH)) == AGAIN
    query.run(2, {0: ["last"]})
    check(query, [*values, *ALL, "last"])


def test_lost_parts_are_not_made_up_from_other_rows(query: Query, values: list[str]) -> None:
    query.decide(query.write(1, BATCH), 1)
    with query.brokers() as brokers:
        Transactions(brokers).init(query.transactional_id(0), 60_000)
    query.start_again()
    with pytest.raises(SparkError, match="split among the tasks in another way"):
        query.write_part(1, 2, [rows(["x"])])
    messages = query.write(1, {0: BATCH[0]})
    with pytest.raises(SparkError, match="1 tasks is not the one that was decided"):
        query.commit(messages, 1)
    query.abort(messages, 1)
    check(query, values + ALL[40:])


def test_the_newer_of_two_attempts_counts(query: Query, values: list[str]) -> None:
    older = query.write(1, BATCH)
    query.start_again()
    newer = query.write(1, BATCH)
    with pytest.raises(SparkError, match="another attempt has taken it over"):
        query.commit(older, 1)
    query.abort(older, 1)
    query.commit(newer, 1)
    check(query, values + ALL)


def test_an_attempt_that_was_overtaken_writes_nothing(query: Query, values: list[str]) -> None:
    def overtaken() -> Iterator[pa.RecordBatch]:
        yield rows(["zombie"])
        query.start_again()
        query.run(1, {0: ["b0"]})
        yield rows(["zombie"])

    with pytest.raises(SparkError, match=r"EPOCH|FENCED|TRANSACTION|TXN"):
        query.write_part(1, 0, overtaken())
    check(query, [*values, "b0"])
    query.run(2, {0: ["last"]})
    check(query, [*values, "b0", "last"])


def test_an_attempt_that_wakes_up_later_skips_its_rows(query: Query, values: list[str]) -> None:
    query.run(1, {0: ["b0"]})
    query.run(2, {1: ["c0"]})
    # Task 1 had no rows in batch 1, so it has no marker of it; the decision on batch 2 is enough.
    assert kinds([query.write_part(1, 1, [rows(["zombie"])])]) == ["AlreadyCommitted"]
    check(query, [*values, "b0", "c0"])


def test_a_transaction_that_ran_out_of_time_is_not_committed(
    query: Query, values: list[str]
) -> None:
    hasty = Query(replace(query.options, transaction_timeout_ms=300), query.query_id)
    messages = hasty.write(1, BATCH)
    wait_until_ended(hasty, [0, 1, 3])
    with pytest.raises(SparkError, match=r"kafka\.transaction\.timeout\.ms, 300 ms"):
        hasty.commit(messages, 1)
    hasty.abort(messages, 1)
    query.run(1, BATCH)
    check(query, values + ALL)


def test_transactions_that_run_out_of_time_after_the_decision(
    query: Query, values: list[str]
) -> None:
    hasty = Query(replace(query.options, transaction_timeout_ms=300), query.query_id)
    hasty.decide(hasty.write(1, BATCH), 1)
    wait_until_ended(hasty, [0, 1, 3])
    query.start_again()
    messages = query.run(1, BATCH)
    assert kinds(messages) == ["Prepared", "Prepared", "Written", "Prepared"]
    check(query, values + ALL)


def test_abort_leaves_nothing_open(query: Query, values: list[str]) -> None:
    messages = query.write(1, BATCH)
    query.abort([*messages[:1], *messages[2:]], 1)
    with query.brokers() as brokers:
        states = Transactions(brokers).describe(query.transactional_id(each) for each in range(4))
    # Nobody has told the driver of task 1, nor was there anything to do for task 2.
    still_open = [each for each, state in states.items() if state.transaction_state == ONGOING]
    assert still_open == [query.transactional_id(1)]
    query.start_again()
    query.run(1, BATCH)
    check(query, values + ALL)


def test_abort_does_not_undo_a_decision(query: Query, values: list[str]) -> None:
    messages = query.write(1, BATCH)
    query.decide(messages, 1)
    query.abort(messages, 1)
    query.start_again()
    assert kinds(query.run(1, BATCH)) == AGAIN
    check(query, values + ALL)


def test_another_query_has_its_own_batches(query: Query, values: list[str]) -> None:
    query.run(1, BATCH)
    other = Query(query.options)
    assert "Prepared" in kinds(other.run(1, BATCH))
    check(query, values + ALL + ALL)


def test_a_decision_of_many_tasks_is_read_as_it_was_written(query: Query) -> None:
    transactions = tuple(
        OpenTransaction(query.transactional_id(number), 10**15 + number, 30_000, True)
        for number in range(1_000)
    )
    decision = Decision(41, 2_000, transactions)
    with query.brokers() as brokers:
        markers = Markers(brokers)
        assert markers.decision(query.decision_group) is None
        markers.record(query.decision_group, decision)
        assert markers.decision(query.decision_group) == decision


def test_a_group_of_somebody_else_is_not_taken_for_the_sinks(query: Query) -> None:
    query.run(0, {0: ["a"]})
    with query.brokers() as brokers:
        Transactions(brokers).describe_settled([query.transactional_id(0)])
        markers = Markers(brokers)
        # With another prefix this group could be that of a query.
        with pytest.raises(SparkError, match="transactionalIdPrefix"):
            markers.decision(query.transactional_id(0))


def test_a_timeout_beyond_what_the_broker_allows_is_named(query: Query) -> None:
    patient = Query(replace(query.options, transaction_timeout_ms=2**31 - 1))
    with pytest.raises(OptionError, match=r"kafka\.transaction\.timeout\.ms is 2147483647"):
        patient.run(0, BATCH)


def test_with_transactions_v2_the_next_batch_goes_on_without_asking(query: Query) -> None:
    first, second = (query.run(number, {0: [f"v{number}"]})[0] for number in range(2))
    assert isinstance(first, Prepared)
    assert isinstance(second, Prepared)
    assert first.transaction.producer_id == second.transaction.producer_id
    assert second.transaction.producer_epoch == first.transaction.producer_epoch + 1
    check(query, ["v0", "v1"])


def test_workers_take_turns(query: Query) -> None:
    """A task of the next batch runs wherever there is room."""
    memories: list[dict[tuple[str, int], tuple[int, OpenTransaction]]] = [{}, {}]
    for number in range(6):
        memory = memories[number // 2 % 2]
        part._prepared.clear()
        part._prepared.update(memory)
        query.run(number, {0: [f"v{number}"]})
        memory.clear()
        memory.update(part._prepared)
    check(query, [f"v{number}" for number in range(6)])


def test_the_markers_are_in_a_topic_of_their_own(query: Query) -> None:
    query.run(0, {0: ["a"]})
    assert committed_values(query.options.bootstrap, MARKER_PLACE.topic) == []


def wait_until_ended(query: Query, partition_ids: list[int]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        with query.brokers() as brokers:
            states = Transactions(brokers).describe_settled(
                [query.transactional_id(each) for each in partition_ids]
            )
        if all(state.transaction_state != ONGOING for state in states.values()):
            return
        time.sleep(0.05)
    raise AssertionError("transactions do not run out of time")
