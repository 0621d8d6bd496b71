"""The sink in real Spark jobs and queries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.sink.committed import (
    WAIT_S,
    Seen,
    assert_committed,
    committed_records,
)
from tests.spark.sink.query import PARTITIONS, Query, sink_options
from tests.spark.topics import create_topic
from tidelog.client.partitioners.key_hash import key_partition
from tidelog.spark.pipeline.file.model import OutputMode, TopicSink
from tidelog.spark.pipeline.run.topic_updates import topic_updates
from tidelog.spark.sink.transaction import ONGOING, Transactions
from tidelog.testing import Broker


def produce(bootstrap: str, topic: str, values: list[str], partitions: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number, value in enumerate(values):
        producer.produce(topic, value, value, partition=number % partitions)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def copy(spark: SparkSession, bootstrap: str, topic: str, checkpoint: Path) -> StreamingQuery:
    """Everything that is in a topic, into another one."""
    rows = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 20_000)
        .load()
        .select("key", "value")
    )
    return (
        rows.writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", f"{topic}-copy")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


@pytest.mark.timeout(300)
def test_a_job_writes_every_column(spark: SparkSession, broker: Broker, topic: str) -> None:
    bootstrap = broker.bootstrap_servers
    names = [f"{topic}-a", f"{topic}-b"]
    for name in names:
        create_topic(bootstrap, name, PARTITIONS)
    rows = spark.createDataFrame(
        [
            ("k1", b"v1", names[0], None, [("h1", b"1"), ("h2", None)]),
            (None, b"v2", names[0], 1, None),
            ("k3", None, names[1], None, []),
        ],
        "key string, value binary, topic string, partition int,"
        " headers array<struct<key:string,value:binary>>",
    )
    rows.write.format("tidelog").option("kafka.bootstrap.servers", bootstrap).mode("append").save()
    assert_committed(bootstrap, names[0], ["v1", "v2"])
    assert_committed(bootstrap, names[1], [""])
    assert set(committed_records(bootstrap, names[0])) == {
        Seen(key_partition(b"k1", 3), b"k1", b"v1", (("h1", b"1"), ("h2", None))),
        Seen(1, None, b"v2"),
    }
    assert committed_records(bootstrap, names[1]) == [Seen(key_partition(b"k3", 3), b"k3", None)]


@pytest.mark.timeout(300)
def test_a_job_appends_whether_told_or_not(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    rows = spark.createDataFrame([("v",)], "value string")
    rows.write.format("tidelog").options(**options).save()
    rows.write.options(**options).save(format="tidelog")
    rows.write.format("tidelog").options(**options).mode("error").save()
    rows.write.save(None, "tidelog", "append", **options)
    assert_committed(broker.bootstrap_servers, topic, ["v"] * 4)
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        rows.write.format("tidelog").options(**options).mode("overwrite").save()
    with pytest.raises(PySparkException, match='cannot be written in the "Ignore" mode'):
        rows.write.format("tidelog").options(**options).mode("ignore").save()
    # Nothing changes for what is not ours.
    rows.write.save(str(tmp_path / "rows"))
    with pytest.raises(PySparkException, match="PATH_ALREADY_EXISTS"):
        rows.write.save(str(tmp_path / "rows"))


@pytest.mark.timeout(300)
def test_a_job_says_which_option_is_wrong(spark: SparkSession, broker: Broker) -> None:
    job = spark.range(1).write.format("tidelog").mode("append")
    with pytest.raises(PySparkException, match="the column value is missing"):
        job.options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"}).save()


@pytest.mark.timeout(300)
def test_a_micro_batch_that_spark_runs_again_lands_once(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    for name in (topic, f"{topic}-copy"):
        create_topic(bootstrap, name, PARTITIONS)
    values = [f"v{number}" for number in range(30_000)]
    produce(bootstrap, topic, values)
    copy(spark, bootstrap, topic, tmp_path).awaitTermination(WAIT_S)
    assert_committed(bootstrap, f"{topic}-copy", values)
    commits = sorted(
        (each for each in (tmp_path / "commits").iterdir() if each.name.isdigit()),
        key=lambda each: int(each.name),
    )
    assert len(commits) == 2
    # As if the driver had died after the sink's commit and before its own note of it.
    commits[-1].unlink()
    more = [f"w{number}" for number in range(100)]
    produce(bootstrap, topic, more)
    again = copy(spark, bootstrap, topic, tmp_path)
    again.awaitTermination(WAIT_S)
    assert again.recentProgress[0]["batchId"] == int(commits[-1].name)
    assert_committed(bootstrap, f"{topic}-copy", values + more)


@pytest.mark.timeout(300)
def test_workers_that_are_killed_write_nothing_twice(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    for name in (topic, f"{topic}-copy"):
        create_topic(bootstrap, name, PARTITIONS)
    values = [f"v{number}" for number in range(60_000)]
    produce(bootstrap, topic, values)
    query = copy(spark, bootstrap, topic, tmp_path)
    killed = 0
    try:
        # A task may fail three times: one of them is left for a worker that Spark fails to start.
        for _ in range(2):
            killed += kill_workers_at_work(query)
        query.awaitTermination(WAIT_S)
    finally:
        query.stop()
    assert killed
    assert_committed(bootstrap, f"{topic}-copy", values)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_update", [False, True], ids=["sink", "topic of a pipeline"])
def test_a_query_that_fails_leaves_nothing_open(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, is_update: bool
) -> None:
    """Its one task is killed each time, so no task tells the driver of its transaction."""
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, topic, 1)
    create_topic(bootstrap, f"{topic}-copy", PARTITIONS)
    produce(bootstrap, topic, [f"{number:032d}" for number in range(25_000)], partitions=1)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": f"{topic}-copy"}

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        time.sleep(WAIT_S)

    rows = (
        spark.readStream.format("tidelog")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
        .option("startingOffsets", "earliest")
        .load()
        .select("value")
        .mapInArrow(slow, "value binary")
    )
    writer = rows.writeStream.option("checkpointLocation", str(tmp_path))
    if is_update:
        updates = TopicSink("out", "in", options, mode=OutputMode.UPDATE)
        writer = writer.foreachBatch(topic_updates(updates)).outputMode("update")
    else:
        writer = writer.format("tidelog").options(**options)
    query = writer.start()
    by_hand = Query(sink_options(bootstrap, f"{topic}-copy"), str(query.id))
    was_open = False
    try:
        deadline_s = time.monotonic() + WAIT_S
        while query.isActive and time.monotonic() < deadline_s:
            if state_of_task(by_hand) == ONGOING:
                was_open = True
                for each in psutil.Process().children(recursive=True):
                    if is_worker(each):
                        each.kill()
            time.sleep(0.02)
    finally:
        query.stop()
    assert was_open
    assert query.exception() is not None
    assert state_of_task(by_hand) == "CompleteAbort"


def state_of_task(query: Query) -> str:
    with query.client() as client:
        ids = [query.transactional_id(0)]
        return Transactions(client).describe_settled(ids)[ids[0]].transaction_state


def kill_workers_at_work(query: StreamingQuery) -> int:
    """kill -9, once they have begun, of the processes in which this session's tasks run Python."""
    deadline_s = time.monotonic() + WAIT_S
    while query.isActive and time.monotonic() < deadline_s:
        workers = [each for each in psutil.Process().children(recursive=True) if is_worker(each)]
        at_work = [each for each in workers if has_worked(each)]
        if at_work:
            for each in workers:
                each.kill()
            return len(workers)
        time.sleep(0.01)
    return 0


def is_worker(process: psutil.Process) -> bool:
    """A worker is forked from its daemon, and has the same command line."""
    try:
        parent = process.parent()
        return parent is not None and all(
            each.cmdline()[-1:] == ["pyspark.worker"] for each in (process, parent)
        )
    except psutil.NoSuchProcess:
        return False


def has_worked(process: psutil.Process) -> bool:
    """Whether it has connected to the broker, beside its connections to Spark."""
    try:
        return any(each.status == psutil.CONN_ESTABLISHED for each in process.net_connections())
    except psutil.NoSuchProcess:
        return False
