"""Writers of jobs and streams against real brokers, read back with a plain client."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage

from tests.spark.sink.committed import (
    WAIT_S,
    Seen,
    assert_committed,
    committed_records,
    committed_values,
)
from tests.spark.sink.query import PARTITIONS, SCHEMA, Query, kinds, rows, sink_options
from tests.spark.topics import add_partitions, create_topic
from tidelog.client.cluster import layouts
from tidelog.client.partitioners.key_hash import key_partition
from tidelog.spark.errors import SparkError
from tidelog.spark.schema import ARROW_HEADERS
from tidelog.spark.sink import SinkOptions, TidelogBatchWriter, TidelogStreamWriter
from tidelog.spark.sink.messages import Prepared, Written
from tidelog.spark.sink.options import JobTransaction
from tidelog.spark.sink.shape import Shape
from tidelog.spark.sink.transaction import ONGOING, OpenTransaction, Transactions
from tidelog.testing import Broker
from tidelog.testing.broker import free_port

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def options(broker: Broker, topic: str) -> SinkOptions:
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    return sink_options(broker.bootstrap_servers, topic)


def write_job(options: SinkOptions, *parts: pa.RecordBatch) -> list[WriterCommitMessage]:
    writer = TidelogBatchWriter(options, SCHEMA)
    messages = [writer.write_part(number, iter([part])) for number, part in enumerate(parts)]
    writer.commit(messages)
    return messages


def texts(count: int, size: int = 0) -> list[str]:
    return [f"{number:06d}".ljust(size, "x") for number in range(count)]


@pytest.mark.parametrize("codec", CODECS)
def test_every_column_arrives(broker: Broker, topic: str, codec: str) -> None:
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, topic, PARTITIONS)
    given = pa.RecordBatch.from_pylist(
        [
            {"key": b"k1", "value": b"v1", "headers": [{"key": "h", "value": b"1"}]},
            {"key": b"k2", "value": None, "headers": [{"key": "h", "value": None}] * 2},
            {"key": b"k3", "value": b"", "partition": 2},
            {"key": None, "value": b"v4", "partition": 1},
            {"key": b"", "value": b"x" * 100_000},
        ],
        pa.schema(
            [
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", ARROW_HEADERS),
                ("partition", pa.int32()),
            ]
        ),
    )
    (message,) = write_job(sink_options(bootstrap, topic, kafka_compression_type=codec), given)
    assert isinstance(message, Prepared)
    assert message.shape == Shape(5, 100_010)
    assert sum(message.rows_by_partition.values()) == 5
    expected = {
        Seen(key_partition(b"k1", 3), b"k1", b"v1", (("h", b"1"),)),
        Seen(key_partition(b"k2", 3), b"k2", None, (("h", None),) * 2),
        Seen(2, b"k3", b""),
        Seen(1, None, b"v4"),
        Seen(key_partition(b"", 3), b"", b"x" * 100_000),
    }
    assert_committed(bootstrap, topic, ["", "", "v1", "v4", "x" * 100_000])
    assert set(committed_records(bootstrap, topic)) == expected


def test_each_row_may_name_its_topic(broker: Broker, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "ab"]
    for name in names:
        create_topic(broker.bootstrap_servers, name, 2)
    many = pa.record_batch({"value": pa.array(texts(100)), "topic": pa.array(names * 50)})
    options = replace(sink_options(broker.bootstrap_servers, topic), topic=None)
    write_job(options, many)
    for number, name in enumerate(names):
        assert_committed(broker.bootstrap_servers, name, texts(100)[number::2])


def test_nothing_of_a_job_is_seen_before_its_commit(options: SinkOptions, topic: str) -> None:
    writer = TidelogBatchWriter(options, SCHEMA)
    messages = [writer.write_part(number, iter([rows([f"v{number}"])])) for number in range(3)]
    assert committed_values(options.bootstrap, topic) == []
    writer.commit(messages)
    assert_committed(options.bootstrap, topic, ["v0", "v1", "v2"])


@pytest.mark.parametrize("known", [None, JobTransaction("daily", 3)], ids=["a run", "a known job"])
def test_a_job_that_fails_leaves_nothing(
    options: SinkOptions, topic: str, known: JobTransaction | None
) -> None:
    prefix = uuid.uuid4().hex
    writer = TidelogBatchWriter(
        replace(options, transaction=known, transactional_id_prefix=prefix), SCHEMA
    )
    messages: list[WriterCommitMessage | None] = [
        writer.write_part(number, iter([rows([f"v{number}"])])) for number in range(2)
    ]
    # Of task 1 Spark knows only that it failed; task 2 had not begun.
    writer.abort([messages[0], None, None])
    query = Query(options)
    with query.client() as lent:
        ids = [writer.names.task(number) for number in range(3)]
        states = Transactions(lent).describe_settled(ids)
    assert not [each for each in states.values() if each.transaction_state == ONGOING]
    write_job(options, rows(["after"]))
    assert_committed(options.bootstrap, topic, ["after"])


def test_a_second_attempt_of_a_task_takes_the_place_of_the_first(
    options: SinkOptions, topic: str
) -> None:
    writer = TidelogBatchWriter(options, SCHEMA)
    first = writer.write_part(0, iter([rows(["first"])]))
    second = writer.write_part(0, iter([rows(["second"])]))
    with pytest.raises(SparkError, match="another attempt"):
        writer.commit([first])
    writer.commit([second])
    assert_committed(options.bootstrap, topic, ["second"])


def test_a_job_that_says_which_one_it_is_is_written_once(options: SinkOptions, topic: str) -> None:
    application = uuid.uuid4().hex
    first = replace(options, transaction=JobTransaction(application, 0))
    second = replace(options, transaction=JobTransaction(application, 1))
    assert kinds(write_job(first, rows(["a"]), rows(["b"]))) == ["Prepared"] * 2
    assert kinds(write_job(first, rows(["a"]), rows(["b"]))) == ["AlreadyCommitted"] * 2
    failed = TidelogBatchWriter(second, SCHEMA)
    failed.abort([failed.write_part(0, iter([rows(["c"])])), None])
    assert kinds(write_job(second, rows(["c"]), rows(["d"]))) == ["Prepared"] * 2
    assert kinds(write_job(first, rows(["a"]))) == ["AlreadyCommitted"]
    assert_committed(options.bootstrap, topic, ["a", "b", "c", "d"])


@pytest.mark.parametrize("is_known", [False, True], ids=["a run", "a known job"])
def test_a_known_job_is_completed_when_its_driver_died_while_it_committed(
    options: SinkOptions, topic: str, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    known = JobTransaction(uuid.uuid4().hex, 0) if is_known else None
    job = replace(options, transaction=known)
    end = Transactions.end

    def break_off(
        self: Transactions, transactions: Sequence[OpenTransaction], *, commit: bool
    ) -> Any:
        end(self, transactions[:1], commit=commit)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Transactions, "end", break_off)
        with pytest.raises(KeyboardInterrupt):
            write_job(job, rows(["a"]), rows(["b"]))
    assert_committed(options.bootstrap, topic, ["a"])
    if is_known:
        assert kinds(write_job(job, rows(["a"]), rows(["b"]))) == ["AlreadyCommitted"] * 2
        assert_committed(options.bootstrap, topic, ["a", "b"])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("orders-1", "orders"),
        ("orders", "orders-1"),
        ("a.1", "a"),
        ("a:task-1", "a"),
        ("a:decision", "a"),
        ("a%3A", "a:"),
    ],
)
def test_jobs_whose_names_are_alike_are_not_taken_for_each_other(
    options: SinkOptions, topic: str, first: str, second: str
) -> None:
    prefix = uuid.uuid4().hex
    for number, application in enumerate((first, second)):
        # The earlier one has the higher version: taken for the later one's, its rows are skipped.
        named = replace(
            options,
            transactional_id_prefix=prefix,
            transaction=JobTransaction(application, 100 - number),
        )
        messages = write_job(named, *(rows([f"{application} {part}"]) for part in range(3)))
        assert kinds(messages) == ["Prepared"] * 3
    expected = [f"{application} {part}" for application in (first, second) for part in range(3)]
    assert_committed(options.bootstrap, topic, expected)


def test_a_job_is_not_taken_for_the_query_of_its_name(options: SinkOptions, topic: str) -> None:
    query = Query(options)
    query.run(5, {0: ["query"]})
    job = replace(options, transaction=JobTransaction(query.query_id, 3))
    assert kinds(write_job(job, rows(["job"]))) == ["Prepared"]
    assert_committed(options.bootstrap, topic, ["job", "query"])


def test_tasks_without_rows_ask_no_broker() -> None:
    options = sink_options("localhost:1", "nowhere")
    writer = TidelogBatchWriter(options, SCHEMA)
    message = writer.write_part(0, iter([rows([])]))
    assert message == Written()
    writer.commit([message])
    Query(options).run(0, {0: [], 1: []})


def test_at_least_once_needs_no_commit(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    options = sink_options(
        broker.bootstrap_servers, topic, deliveryGuarantee="at-least-once", kafka_acks="1"
    )
    for number in range(3):
        # The numbers of the records go on from writer to writer.
        message = TidelogStreamWriter(options, SCHEMA).write(iter([rows([f"v{number}"] * 2)]))
        assert isinstance(message, Written)
        assert message.rows == 2
    assert_committed(broker.bootstrap_servers, topic, ["v0", "v0", "v1", "v1", "v2", "v2"])


@pytest.mark.parametrize("codec", CODECS)
def test_batches_that_are_too_large_for_the_topic_are_split(
    broker: Broker, topic: str, codec: str
) -> None:
    create_topic(broker.bootstrap_servers, topic, 2, max_message_bytes="3000")
    values = [f"{number:06d}" + random_text(300, number) for number in range(300)]
    options = sink_options(broker.bootstrap_servers, topic, kafka_compression_type=codec)
    write_job(options, rows(values))
    assert_committed(broker.bootstrap_servers, topic, values)
    per_partition: dict[int, list[str]] = {}
    for each in committed_records(broker.bootstrap_servers, topic):
        per_partition.setdefault(each.partition, []).append((each.value or b"").decode())
    assert all(some == sorted(some) for some in per_partition.values())


def test_a_record_that_is_too_large_is_named(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic, PARTITIONS, max_message_bytes="3000")
    options = sink_options(broker.bootstrap_servers, topic)
    with pytest.raises(SparkError, match=rf"{topic}-\d: a record of .* max\.message\.bytes"):
        write_job(options, rows(["x" * 5000]))
    # What the task had open is rolled back at once.
    write_job(options, rows(["small"]))
    assert_committed(broker.bootstrap_servers, topic, ["small"])


def test_a_topic_is_made_when_the_broker_makes_topics(broker: Broker, topic: str) -> None:
    write_job(sink_options(broker.bootstrap_servers, topic), rows(["first"]))
    assert_committed(broker.bootstrap_servers, topic, ["first"])


def test_a_topic_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = {"auto.create.topics.enable": "false"}
    with Broker(mode="thread", data=tmp_path, settings=settings) as broker:
        options = sink_options(broker.bootstrap_servers, "missing", kafka_max_block_ms="300")
        with pytest.raises(SparkError, match="missing"):
            write_job(options, rows(["v"]))
        wrong = sink_options(broker.bootstrap_servers, "not a name")
        with pytest.raises(SparkError, match="INVALID_TOPIC"):
            write_job(wrong, rows(["v"]))
        # The topic of the markers is made on purpose, not by being asked for.
        create_topic(broker.bootstrap_servers, "there", PARTITIONS)
        Query(sink_options(broker.bootstrap_servers, "there")).run(0, {0: ["v"]})
        assert_committed(broker.bootstrap_servers, "there", ["v"])


def test_no_broker_is_an_error_after_a_while() -> None:
    options = sink_options(f"127.0.0.1:{free_port()}", "t", kafka_delivery_timeout_ms="300")
    with pytest.raises(SparkError, match="no broker"):
        write_job(options, rows(["v"]))


def test_a_broker_that_stays_away_is_an_error_after_a_while(tmp_path: Path) -> None:
    with Broker(mode="process", data=tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "t", PARTITIONS)
        options = sink_options(broker.bootstrap_servers, "t", kafka_delivery_timeout_ms="500")
        query = Query(options)
        query.run(0, {0: ["a"]})

        def portions() -> Iterator[pa.RecordBatch]:
            yield rows(["b"])
            broker.kill()
            yield rows(["c"])

        with pytest.raises(
            SparkError, match=r"t-\d: .* kafka\.delivery\.timeout\.ms, 500 ms|no part"
        ):
            query.write_part(1, 0, portions())
        broker.start()
        patient = Query(replace(options, delivery_timeout_ms=60_000), query.query_id)
        patient.run(1, {0: ["b", "c"]})
        assert_committed(broker.bootstrap_servers, "t", ["a", "b", "c"])


def test_a_broker_that_is_killed_while_rows_are_written(tmp_path: Path) -> None:
    """Connections break, the coordinator loads, producers are known again: nothing is lost."""
    with Broker(mode="process", data=tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "t", PARTITIONS)
        # A batch that is in flight when the broker dies may have been stored.
        options = sink_options(broker.bootstrap_servers, "t", kafka_batch_size="20000")
        query = Query(options)
        query.run(0, {0: ["warm"]})
        values = texts(30_000, 100)

        def portions() -> Iterator[pa.RecordBatch]:
            for at in range(0, len(values), 1_000):
                if at == 10_000:
                    restart(broker)
                yield rows(values[at : at + 1_000])

        message = query.write_part(1, 0, portions())
        restart(broker)
        query.commit([message], 1)
        assert_committed(broker.bootstrap_servers, "t", ["warm", *values])


def test_a_broker_that_is_killed_between_the_two_phases(tmp_path: Path) -> None:
    with Broker(mode="process", data=tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "t", PARTITIONS)
        query = Query(sink_options(broker.bootstrap_servers, "t"))
        query.run(0, {0: ["a"], 1: ["b"]})
        messages = query.write(1, {0: ["c"], 1: ["d"]})
        thread = restart(broker)
        query.commit(messages, 1)
        thread.join()
        # The connections that were kept are dead, and the next batch does not mind.
        messages = query.write(2, {0: ["e"], 1: ["f"]})
        restart(broker).join()
        query.commit(messages, 2)
        query.start_again()
        assert kinds(query.run(2, {0: ["e"], 1: ["f"]})) == ["AlreadyCommitted"] * 2
        assert_committed(broker.bootstrap_servers, "t", list("abcdef"))


def test_new_partitions_are_used_in_a_while(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap_servers, topic, 1)
    query = Query(sink_options(broker.bootstrap_servers, topic))
    query.run(0, {0: texts(50)})
    add_partitions(broker.bootstrap_servers, topic, 4)
    monkeypatch.setattr(layouts, "_LAYOUT_AGE_S_MAX", 0.0)
    deadline_s = time.monotonic() + WAIT_S
    for number in range(1, 1000):
        (message,) = query.run(number, {0: texts(50)})
        assert isinstance(message, Prepared)
        if len(message.rows_by_partition) == 4:
            return
        assert time.monotonic() < deadline_s
    raise AssertionError("only the old partition is written to")


def restart(broker: Broker) -> threading.Thread:
    """kill -9 now; the broker is back a moment later."""
    broker.kill()
    thread = threading.Thread(target=broker.start)
    thread.start()
    return thread


def random_text(size: int, seed: int) -> str:
    return random.Random(seed).randbytes(size // 2).hex()
