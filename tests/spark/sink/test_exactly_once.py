"""A micro-batch lands once, wherever a run of it was cut off."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.spark.sink.committed import WAIT_S, assert_committed, committed_values
from tests.spark.sink.query import Messages, Parts, Query, kinds, rows
from tidelog.spark.errors import OptionError, SparkError
from tidelog.spark.sink import markers, part
from tidelog.spark.sink.markers import MARKER_PLACE, DecidedPart, Decision, Markers
from tidelog.spark.sink.messages import Prepared
from tidelog.spark.sink.shape import Shape
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
    with query.client() as client:
        assert not Transactions(client).end([messages[1].transaction], commit=True)
    query.start_again()
    # The rows come in other portions now, which is all the same: they are in the topic.
    assert kinds(query.run(1, {0: ALL[:20], 2: ALL[20:]})) == ["AlreadyCommitted"] * 2
    check(query, values + ALL)


def test_a_part_that_is_lost_after_the_decision_is_written_again(
    query: Query, values: list[str]
) -> None:
    query.decide(query.write(1, BATCH), 1)
    with query.client() as client:
        # An attempt from before the crash wakes up.
        Transactions(client).init(query.transactional_id(0), 60_000)
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


OTHER_SPLITS: dict[str, Parts] = {
    "fewer tasks": {0: BATCH[0]},
    "fewer tasks, all rows": {0: ALL},
    "a row has moved": {0: ALL[:39], 1: ["a39", "b0"], 2: [], 3: BATCH[3]},
    "all rows are in the part that was lost": {0: [], 1: ALL, 2: [], 3: []},
    "all rows are in another one": {0: ALL, 1: [], 2: [], 3: []},
    "as many rows, but others": {0: [*ALL[1:40], "b0"], 1: ["a0"], 2: [], 3: ["d10", *ALL[42:]]},
    "a part is gone": {0: BATCH[0], 1: [*BATCH[1], *BATCH[3]], 2: [], 3: []},
}


@pytest.mark.parametrize("split", OTHER_SPLITS)
def test_lost_parts_are_not_made_up_from_other_rows(
    query: Query, values: list[str], split: str
) -> None:
    """The parts of a batch are told by their numbers alone only if none of them was lost."""
    query.decide(query.write(1, BATCH), 1)
    with query.client() as client:
        Transactions(client).init(query.transactional_id(1), 60_000)
    for _ in range(2):
        query.start_again()
        messages = query.write(1, OTHER_SPLITS[split])
        with pytest.raises(SparkError, match="split among the tasks in another way") as raised:
            query.commit(messages, 1)
        assert "task-" in str(raised.value)
        query.abort(messages, 1)
    check(query, [*values, *BATCH[0], *BATCH[3]])
    # With the plan that it had, the query goes on.
    query.start_again()
    query.run(1, BATCH)
    query.run(2, {0: ["last"]})
    check(query, [*values, *ALL, "last"])


def test_without_its_decision_the_parts_of_a_batch_are_told_by_their_numbers(
    query: Query, values: list[str]
) -> None:
    """The way out for one who knows that the rows are the right ones."""
    query.decide(query.write(1, BATCH), 1)
    with query.client() as client:
        Transactions(client).init(query.transactional_id(1), 60_000)
    query.start_again()
    parts: Parts = {**BATCH, 0: ["other"], 1: ["new"]}
    messages = query.write(1, parts)
    with pytest.raises(SparkError, match="in another way"):
        query.commit(messages, 1)
    query.abort(messages, 1)
    admin = AdminClient({"bootstrap.servers": query.options.bootstrap})
    for deleted in admin.delete_consumer_groups([query.names.decision]).values():
        deleted.result(WAIT_S)
    query.start_again()
    query.run(1, parts)
    check(query, [*values, *BATCH[0], "new", *BATCH[3]])


def test_a_task_that_had_no_rows_does_not_write_those_of_a_lost_part(
    query: Query, values: list[str]
) -> None:
    query.decide(query.write(1, BATCH), 1)
    with query.client() as client:
        Transactions(client).init(query.transactional_id(0), 60_000)
    query.start_again()
    with pytest.raises(SparkError, match="split among the tasks in another way"):
        query.write_part(1, 2, [rows(["x"])])
    check(query, values + ALL[40:])


@pytest.mark.parametrize("split", OTHER_SPLITS)
def test_another_split_is_harmless_if_nothing_was_lost(
    query: Query, values: list[str], split: str
) -> None:
    query.decide(query.write(1, BATCH), 1)
    query.start_again()
    assert "Prepared" not in kinds(query.run(1, OTHER_SPLITS[split]))
    query.run(2, {0: ["last"]})
    check(query, [*values, *ALL, "last"])


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


def open_tasks(query: Query) -> list[int]:
    with query.client() as client:
        states = Transactions(client).describe(query.transactional_id(each) for each in range(4))
    return [
        number for number, state in enumerate(states.values()) if state.transaction_state == ONGOING
    ]


def test_abort_leaves_nothing_open(query: Query, values: list[str]) -> None:
    messages = query.write(1, BATCH)
    # Task 1 was killed: nobody has told the driver of its transaction.
    query.abort([messages[0], None, *messages[2:]], 1)
    assert open_tasks(query) == []
    query.start_again()
    query.run(1, BATCH)
    check(query, values + ALL)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_abort_when_no_task_has_told_anything(
    query: Query, values: list[str], tmp_path: Path, scheme: str
) -> None:
    query.write(1, BATCH)
    (tmp_path / "metadata").write_text(json.dumps({"id": query.query_id}))
    known = replace(query.options, checkpoint_location=f"{scheme}{tmp_path}")
    Query(known, query.query_id).abort([None] * 4, 1)
    assert open_tasks(query) == []
    # A checkpoint that is elsewhere tells nothing, which is no error.
    query.write(1, BATCH)
    for elsewhere in (None, "s3://bucket/checkpoint", str(tmp_path / "other")):
        Query(replace(known, checkpoint_location=elsewhere), query.query_id).abort([None] * 4, 1)
    assert open_tasks(query) == [0, 1, 3]
    query.start_again()
    query.run(1, BATCH)
    check(query, values + ALL)


def test_abort_of_tasks_whose_number_is_not_known(query: Query, values: list[str]) -> None:
    query.write(1, BATCH)
    query.writer().abort_query(query.query_id, 1)
    assert open_tasks(query) == []
    query.decide(query.write(1, BATCH), 1)
    query.writer().abort_query(query.query_id, 1)
    query.writer().abort_query(query.query_id, 0)
    query.start_again()
    assert kinds(query.run(1, BATCH)) == AGAIN
    check(query, values + ALL)


def test_abort_lets_be_what_is_decided_or_of_another_run(query: Query, values: list[str]) -> None:
    messages = query.write(1, BATCH)
    query.decide(messages, 1)
    query.abort([None] * 4, 1)
    query.abort([messages[0], None, None, None], 1)
    query.start_again()
    assert kinds(query.run(1, BATCH)) == AGAIN
    older = query.write(2, {0: ["x"], 1: ["y"]})
    query.start_again()
    newer = query.write(2, {0: ["x"], 1: ["y"]})
    # The older run knows of task 0 alone, and sees that it was taken over.
    query.abort([older[0], None], 2)
    query.commit(newer, 2)
    check(query, [*values, *ALL, "x", "y"])


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
    parts = tuple(
        DecidedPart(
            OpenTransaction(query.transactional_id(number), 10**15 + number, 30_000, True),
            Shape(number, 10**9 - number),
        )
        for number in range(1_000)
    )
    decision = Decision(41, parts)
    with query.client() as client:
        groups = Markers(client)
        assert groups.decision(query.names) is None
        for batch_id in range(41, 44):
            groups.record(query.names, replace(decision, batch_id=batch_id))
            assert groups.decision(query.names) == replace(decision, batch_id=batch_id)


class DriverDied(BaseException):
    pass


@pytest.fixture
def dies_before_the_head(monkeypatch: pytest.MonkeyPatch) -> Callable[[Query, Messages, int], None]:
    """Makes decisions long, and gives a commit that breaks off between the pieces of its decision
    and the head."""
    monkeypatch.setattr(markers, "_PIECE_CHARACTERS", 40)
    write = Markers._write

    def commit(query: Query, messages: Messages, batch_id: int) -> None:
        def break_off(self: Markers, offsets: Mapping[str, Any]) -> None:
            if query.names.decision in offsets:
                raise DriverDied
            write(self, offsets)

        with monkeypatch.context() as patch:
            patch.setattr(Markers, "_write", break_off)
            with pytest.raises(DriverDied):
                query.commit(messages, batch_id)

    return commit


MANY: Parts = {number: [f"v{number:02d}"] for number in range(12)}
ALL_OF_MANY = [value for values in MANY.values() for value in values]


def test_a_crash_between_the_pieces_of_a_decision_and_its_head(
    query: Query, dies_before_the_head: Callable[[Query, Messages, int], None]
) -> None:
    query.run(0, MANY)
    for _ in range(2):
        dies_before_the_head(query, query.write(1, MANY), 1)
        query.start_again()
    assert kinds(query.run(0, MANY)) == ["AlreadyCommitted"] * 12
    assert kinds(query.run(1, MANY)) == ["Prepared"] * 12
    check(query, ALL_OF_MANY * 2)


def test_a_crash_between_the_pieces_of_a_repair_and_its_head(
    query: Query, dies_before_the_head: Callable[[Query, Messages, int], None]
) -> None:
    query.run(0, {0: ["first"]})
    query.decide(query.write(1, MANY), 1)
    with query.client() as client:
        decided = Markers(client).decision(query.names)
        for number in (9, 10, 11):
            Transactions(client).init(query.transactional_id(number), 60_000)
    query.start_again()
    messages = query.write(1, MANY)
    assert kinds(messages) == ["AlreadyCommitted"] * 9 + ["Prepared"] * 3
    dies_before_the_head(query, messages, 1)
    with query.client() as client:
        assert Markers(client).decision(query.names) == decided
    query.start_again()
    assert kinds(query.run(1, MANY)) == ["AlreadyCommitted"] * 9 + ["Prepared"] * 3
    check(query, ["first", *ALL_OF_MANY])


def test_a_group_of_somebody_else_is_not_taken_for_the_sinks(query: Query) -> None:
    Query(query.options).run(0, {0: ["a"]})
    consumer = Consumer(
        {"bootstrap.servers": query.options.bootstrap, "group.id": query.names.decision}
    )
    consumer.commit(offsets=[TopicPartition(*MARKER_PLACE, 1)], asynchronous=False)
    consumer.close()
    with pytest.raises(SparkError, match="transactionalIdPrefix"):
        query.run(0, {0: ["a"]})


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
        with query.client() as client:
            states = Transactions(client).describe_settled(
                [query.transactional_id(each) for each in partition_ids]
            )
        if all(state.transaction_state != ONGOING for state in states.values()):
            return
        time.sleep(0.05)
    raise AssertionError("transactions do not run out of time")
