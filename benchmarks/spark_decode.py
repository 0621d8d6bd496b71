"""Record batches into Arrow: compiled, uncompiled, and how far from the bounds.

    python -m benchmarks.spark_decode

Decoding is measured on answers in memory against the plain decoder, which makes an object per
record, and against one memcpy of the same bytes. Reading is measured from a broker in a process of
its own against a loop that only fetches. Ends within 20 s.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.client.cluster import Cluster
from tidelog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.compression import Compression
from tidelog.protocol.record_batch import iterate_headers
from tidelog.protocol.records import Record, decode_batches, encode_batch
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.connections import close_idle_clusters
from tidelog.spark.decode import AbortedTransactions, FetchedBatches, RangeDecoder
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.runtime.compiled import IS_COMPILED
from tidelog.spark.source.fetching import FetchSettings, read_range
from tidelog.testing import Broker

KEY = b"k" * 16
ANSWER_BYTES = 16 * 1024 * 1024
BATCH_BYTES = 512 * 1024
TOPIC_BYTES = 512 * 1024 * 1024
MEASURE_S = 0.3


@dataclass(frozen=True, slots=True)
class Shape:
    """What the batches of an answer are like."""

    name: str
    value_bytes: int
    rows_per_batch: int
    compression: Compression = Compression.NONE


SHAPES = [
    Shape("1 KB", 1024, BATCH_BYTES // 1024),
    Shape("100 B", 100, BATCH_BYTES // 100),
    Shape("100 B, 10 a batch", 100, 10),
    Shape("100 B, 1 a batch", 100, 1),
    Shape("1 KB, lz4", 1024, BATCH_BYTES // 1024, Compression.LZ4),
    Shape("1 KB, zstd", 1024, BATCH_BYTES // 1024, Compression.ZSTD),
]


def make_answer(shape: Shape, size_bytes: int) -> tuple[bytes, int]:
    """Batches of the shape that hold about `size_bytes` of data, and the offset after them."""
    value = np.random.default_rng(1).integers(0, 40, shape.value_bytes, dtype=np.uint8).tobytes()
    rows = max(shape.rows_per_batch, size_bytes // (shape.value_bytes + len(KEY) + 10))
    batches = []
    for base in range(0, rows, shape.rows_per_batch):
        records = [
            Record(base + each, 1_700_000_000_000 + each, KEY, value)
            for each in range(shape.rows_per_batch)
        ]
        batches.append(encode_batch(records, base_offset=base, compression=shape.compression))
    return b"".join(batches), base + shape.rows_per_batch


def decode(answer: bytes, end: int) -> None:
    decoder = RangeDecoder(OffsetRange("topic", 0, 0, end), include_headers=False, rows_max=20_000)
    fetched = FetchedBatches(memoryview(answer))
    rows = sum(
        batch.num_rows
        for batches in (
            decoder.add(fetched, AbortedTransactions(()), 0),
            decoder.finish(),
        )
        for batch in batches
    )
    assert rows == end


def decode_plainly(answer: bytes) -> None:
    for _ in decode_batches(answer):
        pass


def seconds(call: Callable[[], object]) -> float:
    """The CPU seconds of the best of some runs, after one that compiles and warms up."""
    call()
    best, deadline = float("inf"), time.perf_counter() + MEASURE_S
    while time.perf_counter() < deadline:
        start = time.thread_time()
        call()
        best = min(best, time.thread_time() - start)
    return best


def measure_decoding(shapes: list[Shape], answer_bytes: int) -> None:
    print("per second of CPU:")
    print(f"{'records':20}{'M rows':>10}{'GB':>8}{'plain M rows':>16}{'memcpy GB':>13}")
    for shape in shapes:
        answer, rows = make_answer(shape, answer_bytes)
        data_gb = rows * (shape.value_bytes + len(KEY)) / 1e9
        source = np.zeros(int(data_gb * 1e9), dtype=np.uint8)
        target = np.empty_like(source)

        compiled_s = seconds(lambda: decode(answer, rows))  # noqa: B023
        copy_s = seconds(lambda: np.copyto(target, source))  # noqa: B023
        small, small_rows = make_answer(shape, ANSWER_BYTES // 16)
        plain_s = seconds(lambda: decode_plainly(small))  # noqa: B023
        print(
            f"{shape.name:20}{rows / compiled_s / 1e6:10.2f}{data_gb / compiled_s:8.2f}"
            f"{small_rows / plain_s / 1e6:16.2f}{data_gb / copy_s:13.2f}"
        )


def fill(cluster: Cluster, topic: str) -> int:
    """Produce the same batch until the topic has its size; the number of records in it."""
    value = os.urandom(1024)
    count = BATCH_BYTES // 1024
    records = [Record(each, 1_700_000_000_000, KEY, value) for each in range(count)]
    batch = encode_batch(records)
    leader = cluster.connect(cluster.leader(TopicPartition(topic, 0)).address)
    topic_id = cluster.metadata([topic]).topics[0].topic_id
    for _ in range(TOPIC_BYTES // BATCH_BYTES):
        row = PartitionProduceData(index=0, records=bytes(batch))
        data = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[row])
        answer = leader.call(
            ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data]), ProduceResponse
        )
        assert not answer.responses[0].partition_responses[0].error_code
    return count * (TOPIC_BYTES // BATCH_BYTES)


def fetch_only(cluster: Cluster, topic: str, end: int) -> int:
    """Fetch the whole topic, one request in flight, and look at headers only; the bytes."""
    leader = cluster.connect(cluster.leader(TopicPartition(topic, 0)).address)
    topic_id = cluster.metadata([topic]).topics[0].topic_id
    position = size_bytes = 0

    def send() -> None:
        partition = FetchPartition(
            partition=0, fetch_offset=position, partition_max_bytes=ANSWER_BYTES
        )
        wanted = FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])
        leader.send(FetchRequest(max_bytes=ANSWER_BYTES, topics=[wanted]))

    send()
    while position < end:
        row = leader.receive(FetchResponse).responses[0].partitions[0]
        assert row.records
        size_bytes += len(row.records)
        for _, header in iterate_headers(row.records, allow_partial=True):
            position = header.next_offset
        if position < end:
            send()
    return size_bytes


def read_all(bootstrap: str, topic: str, end: int) -> None:
    batches = read_range(FetchSettings(bootstrap), OffsetRange(topic, 0, 0, end))
    assert sum(batch.num_rows for batch in batches) == end


def measure_reading() -> None:
    with Broker(mode="process", settings={"durability": "page-cache"}) as broker:
        bootstrap = broker.bootstrap_servers
        with Cluster(bootstrap) as cluster:
            make_topic(bootstrap, "bench")
            end = fill(cluster, "bench")
            size_bytes = fetch_only(cluster, "bench", end)
            cpu_start = time.process_time()
            fetch_s = min(timed(lambda: fetch_only(cluster, "bench", end)) for _ in range(3))
            fetch_cpu_s = (time.process_time() - cpu_start) / 3
        read_all(bootstrap, "bench", end)
        cpu_start = time.process_time()
        read_s = min(timed(lambda: read_all(bootstrap, "bench", end)) for _ in range(3))
        read_cpu_s = (time.process_time() - cpu_start) / 3
        close_idle_clusters()
    for name, wall_s, cpu_s in (
        ("fetch only", fetch_s, fetch_cpu_s),
        ("fetch and decode", read_s, read_cpu_s),
    ):
        print(
            f"{name:20}{size_bytes / wall_s / 1e6:8.0f} MB/s {end / wall_s / 1e6:6.2f} M rows/s"
            f" {cpu_s / size_bytes * 1e9:6.2f} CPU s/GB"
        )


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def make_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def main() -> None:
    if not IS_COMPILED:
        print("uncompiled")
        measure_decoding(SHAPES[:2], ANSWER_BYTES // 16)
    else:
        print("compiled")
        measure_decoding(SHAPES, ANSWER_BYTES)
        measure_reading()
        subprocess.run(
            [sys.executable, "-m", "benchmarks.spark_decode"],
            env={**os.environ, "TIDELOG_UNCOMPILED": "1"},
            check=True,
        )


if __name__ == "__main__":
    main()
