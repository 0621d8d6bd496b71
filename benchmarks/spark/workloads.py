"""What `make bench-spark` measures: one function a row of the table, each in the given session."""

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.page_cache import settle
from benchmarks.workloads import create_topic

VALUE_BYTES = 1024
KEY_BYTES = 16
ROW_MB = (VALUE_BYTES + KEY_BYTES) / 1e6
PARTITIONS = 2

# Our source as it is where the broker is on another machine.
OVER_TCP = "tidelog over TCP"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is moved; `quick` only shows that it runs."""

    rows: int = 1_000_000
    copied_rows: int = 400_000
    latency_s: float = 20.0
    warm_ups: int = 2
    rounds: int = 11


QUICK = Sizes(rows=40_000, copied_rows=20_000, latency_s=4.0, warm_ups=1, rounds=1)


@dataclass(frozen=True, slots=True)
class Bench:
    """A session, a broker, and topics that are filled already."""

    spark: SparkSession
    bootstrap: str
    sizes: Sizes
    has_connector: bool


def fill(bootstrap: str, topic: str, rows: int) -> None:
    """Make a topic of two partitions with rows of a kilobyte, uncompressed."""
    make_topic(bootstrap, topic)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    block = os.urandom(1 << 20)
    for index in range(rows):
        start = (index * 257) % (len(block) - VALUE_BYTES)
        value = block[start : start + VALUE_BYTES]
        key = b"%016d" % index
        while True:
            try:
                producer.produce(topic, value, key, partition=index % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def make_topic(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, PARTITIONS, {})


def source(bench: Bench, kind: str, topic: str, rows: int) -> DataFrame:
    """Rows from our source, by file or over TCP, from Spark's Kafka source, or the bare one."""
    if kind == "bare":
        reader = bench.spark.read.format("bare")
        return reader.options(rows=str(rows), partitions=str(PARTITIONS)).load()
    name = "tidelog" if kind == OVER_TCP else kind
    reader = bench.spark.read.format(name).option("kafka.bootstrap.servers", bench.bootstrap)
    if kind == OVER_TCP:
        reader = reader.option("localReads", "false")
    return reader.option("subscribe", topic).load()


def rows_per_second(rows: int, job: Callable[[], None]) -> float:
    started = time.perf_counter()
    job()
    return rows / (time.perf_counter() - started)


def settle_heap(spark: SparkSession) -> None:
    """Garbage of the run before is collected now, and not while the next one is measured."""
    jvm = spark._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()


def to_noop(bench: Bench, kind: str, topic: str) -> float:
    """Rows a second from a source into nothing."""
    rows = bench.sizes.rows
    frame = source(bench, kind, topic, rows)
    settle_heap(bench.spark)
    return rows_per_second(rows, frame.write.format("noop").mode("overwrite").save)


def to_sink(bench: Bench, kind: str, topic: str) -> float:
    """Rows a second from a source into the sink of the same kind."""
    rows = bench.sizes.copied_rows
    frame = source(bench, kind, topic, rows).select("key", "value")
    writer = frame.write.format(kind).mode("append")
    if kind != "bare":
        target = f"copy-{time.monotonic_ns()}"
        make_topic(bench.bootstrap, target)
        writer = writer.option("kafka.bootstrap.servers", bench.bootstrap).option("topic", target)
    settle(Path(tempfile.gettempdir()), int(rows * ROW_MB * 1e6))
    settle_heap(bench.spark)
    return rows_per_second(rows, writer.save)


def batch_latency(bench: Bench, kind: str) -> dict[str, float]:
    """Micro-batches of a quiet topic: how long each takes, and how old a row is at the sink."""
    topic = f"quiet-{kind}-{time.monotonic_ns()}"
    make_topic(bench.bootstrap, topic)
    # What earlier rows have left to write would stand before the checkpoint of every batch.
    os.sync()
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        ages = Path(folder) / "ages"
        ages.mkdir()
        writer = _stream(bench, kind, topic).writeStream.format("bare")
        query = writer.options(
            latencies=str(ages), checkpointLocation=f"{folder}/checkpoint"
        ).start()
        durations = _trickle(bench, topic, query)
        delivered = np.concatenate([np.load(each) for each in ages.glob("*.npy")])
    # The first rows waited for the query to start.
    settled = delivered[len(delivered) // 5 :] if len(delivered) > 50 else delivered
    return {
        "batch p50 ms": statistics.median(durations),
        "delivered p50 ms": float(np.percentile(settled, 50)),
        "delivered p99 ms": float(np.percentile(settled, 99)),
    }


def copy_latency(bench: Bench) -> dict[str, float]:
    """The same through our exactly-once sink, to a read_committed consumer of the other topic."""
    stamp = time.monotonic_ns()
    topic, target = f"quiet-in-{stamp}", f"quiet-out-{stamp}"
    make_topic(bench.bootstrap, topic)
    make_topic(bench.bootstrap, target)
    os.sync()
    ages: list[float] = []
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(bench.bootstrap, target, ages, stop))
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        writer = _stream(bench, "tidelog", topic).select("key", "value").writeStream
        query = (
            writer.format("tidelog")
            .option("kafka.bootstrap.servers", bench.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", f"{folder}/checkpoint")
            .start()
        )
        watcher.start()
        try:
            durations = _trickle(bench, topic, query)
        finally:
            time.sleep(1)
            stop.set()
            watcher.join()
    settled = ages[len(ages) // 5 :]
    return {
        "batch p50 ms": statistics.median(durations),
        "delivered p50 ms": float(np.percentile(settled, 50)),
        "delivered p99 ms": float(np.percentile(settled, 99)),
    }


def _stream(bench: Bench, kind: str, topic: str) -> DataFrame:
    reader = bench.spark.readStream.format(kind)
    reader = reader.option("kafka.bootstrap.servers", bench.bootstrap)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def _trickle(bench: Bench, topic: str, query: StreamingQuery) -> list[float]:
    """Publish 200 small rows a second; the durations of the micro-batches that had rows, in ms."""
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 0})
    seen: dict[int, float] = {}
    try:
        _wait_for_batches(producer, topic, query)
        ends = time.monotonic() + bench.sizes.latency_s
        sent = 0
        started = time.monotonic()
        while time.monotonic() < ends:
            producer.produce(topic, b"%d" % time.time_ns(), partition=sent % PARTITIONS)
            producer.poll(0)
            sent += 1
            if sent % 100 == 0:
                _note_progress(query, seen)
            time.sleep(max(0.0, started + sent / 200 - time.monotonic()))
        producer.flush()
        _note_progress(query, seen)
    finally:
        query.stop()
    # The first batches run before the code of the JVM is compiled.
    batches = [seen[each] for each in sorted(seen)]
    return batches[len(batches) // 5 :]


def _wait_for_batches(producer: Producer, topic: str, query: StreamingQuery) -> None:
    """Rows one by one until the JVM has compiled what a micro-batch runs."""
    seen: dict[int, float] = {}
    deadline = time.monotonic() + 120
    while len(seen) < 80 and time.monotonic() < deadline:
        producer.produce(topic, b"%d" % time.time_ns(), partition=0)
        producer.flush()
        time.sleep(0.1)
        _note_progress(query, seen)


def _note_progress(query: StreamingQuery, seen: dict[int, float]) -> None:
    error = query.exception()
    if error is not None:
        raise error
    for progress in query.recentProgress:
        if progress["numInputRows"]:
            seen[progress["batchId"]] = progress["durationMs"]["triggerExecution"]


def _watch(bootstrap: str, topic: str, ages: list[float], stop: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "watch",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    while not stop.is_set():
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            ages.append((time.time_ns() - int(message.value())) / 1e6)
    consumer.close()


def archive(bench: Bench, topic: str, format_name: str) -> float:
    """Megabytes a second from a topic into a table of a lake."""
    from tidelog.spark import lake

    rows = bench.sizes.rows
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        settle(Path(folder), int(rows * ROW_MB * 1e6))
        started = time.perf_counter()
        lake.archive(
            [topic],
            f"{folder}/lake",
            spark=bench.spark,
            bootstrap=bench.bootstrap,
            format=format_name,
            checkpoint=f"{folder}/checkpoint",
        )
        return rows * ROW_MB / (time.perf_counter() - started)
