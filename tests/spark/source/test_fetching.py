"""read_range against real brokers, with real producers."""

from __future__ import annotations

import errno
import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    Producer,
    TopicPartition,
)

from tests.spark.topics import create_topic, delete_records_before, delete_topic
from tidelog.client.cluster import Address, PartitionLeader, WireConnection
from tidelog.client.cluster import local as local_files
from tidelog.protocol.file_reference import FileReference
from tidelog.protocol.topic_partition import TopicPartition as Name
from tidelog.protocol.uuids import ZERO_UUID, random_uuid
from tidelog.spark.connections import (
    PooledCluster,
    close_idle_clusters,
    lent_cluster,
)
from tidelog.spark.errors import DataLossError, SparkError
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.schema import arrow_schema
from tidelog.spark.source.fetching import FetchSettings, TopicMadeAnew, read_range
from tidelog.testing import Broker
from tidelog.testing.broker import free_port

WAIT_S = 60
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture(params=[True, False], ids=["files", "tcp"])
def settings(bootstrap: str, request: pytest.FixtureRequest) -> FetchSettings:
    return FetchSettings(bootstrap, local_reads=request.param)


def produce(bootstrap: str, topic: str, values: range, **config: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})
    for value in values:
        producer.produce(topic, b"%d" % value, partition=0)
    assert producer.flush(WAIT_S) == 0


def read(settings: FetchSettings, wanted: OffsetRange) -> pa.Table:
    batches = list(read_range(settings, wanted))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, arrow_schema(settings.include_headers))


def read_values(settings: FetchSettings, wanted: OffsetRange) -> list[int]:
    return [int(value) for value in read(settings, wanted)["value"].to_pylist()]


def end_offset(bootstrap: str, topic: str, **config: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **config})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
        return int(high)
    finally:
        consumer.close()


def consume(bootstrap: str, topic: str, isolation: str) -> list[dict[str, Any]]:
    """The rows of a partition by librdkafka's consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + WAIT_S
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            assert time.monotonic() < deadline
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                return rows
            kind, timestamp = message.timestamp()
            assert kind != TIMESTAMP_NOT_AVAILABLE
            rows.append(
                {
                    "key": message.key(),
                    "value": message.value(),
                    "topic": topic,
                    "partition": 0,
                    "offset": message.offset(),
                    "timestamp": timestamp * 1000,
                    "timestampType": 0 if kind == TIMESTAMP_CREATE_TIME else 1,
                    "headers": [
                        {"key": key, "value": value} for key, value in message.headers() or []
                    ]
                    or None,
                }
            )
    finally:
        consumer.close()


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    at = table.schema.get_field_index("timestamp")
    return list(table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist())


def produce_anything(bootstrap: str, topic: str, rng: random.Random) -> None:
    """Records of every shape and size, in batches of every compression."""
    for codec in rng.sample(CODECS * 2, 10):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20}
        )
        for _ in range(rng.choice([1, 3, 200])):
            producer.produce(
                topic,
                rng.choice([None, b"", rng.randbytes(9), rng.randbytes(rng.choice([100, 9000]))]),
                key=rng.choice([None, b"", rng.randbytes(5)]),
                partition=0,
                headers=rng.choice([None, [("a", b"1"), ("é", None), ("a", b"")]]),
                timestamp=rng.choice([1, 1_700_000_000_000 + rng.randrange(10**6)]),
            )
        assert producer.flush(WAIT_S) == 0


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_rows_are_those_of_librdkafka(bootstrap: str, topic: str, timestamp_type: str) -> None:
    create_topic(bootstrap, topic, message_timestamp_type=timestamp_type)
    produce_anything(bootstrap, topic, random.Random(timestamp_type))
    end = end_offset(bootstrap, topic)
    settings = FetchSettings(bootstrap, include_headers=True, max_bytes=20_000, rows_max=300)
    expected = consume(bootstrap, topic, "read_committed")
    assert as_rows(read(settings, OffsetRange(topic, 0, 0, end))) == expected
    start, middle = end // 3, end // 2
    assert as_rows(read(settings, OffsetRange(topic, 0, start, middle))) == expected[start:middle]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("max_bytes", [1, 3000, 16 * 1024 * 1024])
def test_transactions_are_read_as_consumers_read_them(
    bootstrap: str, interleaved: tuple[str, int], isolation: str, max_bytes: int
) -> None:
    topic, end = interleaved
    settings = FetchSettings(
        bootstrap,
        read_committed=isolation == "read_committed",
        include_headers=True,
        max_bytes=max_bytes,
    )
    expected = consume(bootstrap, topic, isolation)
    assert as_rows(read(settings, OffsetRange(topic, 0, 0, end))) == expected
    # From the middle of transactions, and with an end that is a marker.
    for start in (end // 3, end // 2):
        rows = as_rows(read(settings, OffsetRange(topic, 0, start, end - 1)))
        assert rows == [row for row in expected if start <= row["offset"] < end - 1]


@pytest.fixture(scope="module")
def interleaved(broker: Broker) -> tuple[str, int]:
    """A topic in which transactions of three producers lie in each other, and its end."""
    topic = f"interleaved-{os.getpid()}"
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, topic)
    rng = random.Random(4)
    producers = [
        Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"{topic}-{each}",
                "linger.ms": 0,
                "compression.type": rng.choice(CODECS),
            }
        )
        for each in range(3)
    ]
    for each in producers:
        each.init_transactions(WAIT_S)
    plain = Producer({"bootstrap.servers": bootstrap})
    is_open = [False] * len(producers)
    for step in range(120):
        at = rng.randrange(len(producers))
        producer = producers[at]
        if is_open[at] and rng.random() < 0.3:
            if rng.random() < 0.5:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
            is_open[at] = False
            continue
        if not is_open[at]:
            producer.begin_transaction()
            is_open[at] = True
        for _ in range(rng.choice([1, 1, 5])):
            producer.produce(topic, b"%d of %d" % (step, at), partition=0)
        producer.flush(WAIT_S)
        if step % 10 == 0:
            plain.produce(topic, b"plain %d" % step, partition=0)
            plain.flush(WAIT_S)
    for at, producer in enumerate(producers):
        if is_open[at]:
            producer.abort_transaction(WAIT_S)
    # The last markers may be written after the response.
    uncommitted = {"isolation.level": "read_uncommitted"}
    deadline = time.monotonic() + WAIT_S
    while end_offset(bootstrap, topic) < end_offset(bootstrap, topic, **uncommitted):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return topic, end_offset(bootstrap, topic)


def test_a_short_range_is_read_alone(settings: FetchSettings, topic: str) -> None:
    produce(settings.bootstrap, topic, range(1000))
    assert read_values(settings, OffsetRange(topic, 0, 400, 403)) == [400, 401, 402]
    assert read_values(settings, OffsetRange(topic, 0, 400, 400)) == []
    assert read_values(settings, OffsetRange(topic, 0, 999, 1000)) == [999]


def test_ranges_can_be_read_side_by_side(settings: FetchSettings, topic: str) -> None:
    produce(settings.bootstrap, topic, range(3000))
    slices = replace(settings, max_bytes=1, rows_max=10)
    ranges = [OffsetRange(topic, 0, start, start + 1000) for start in (0, 1000, 2000)]
    values: list[list[int]] = [[], [], []]
    for batches in zip_longest(*(read_range(slices, wanted) for wanted in ranges)):
        for into, batch in zip(values, batches, strict=True):
            if batch is not None:
                into.extend(int(value) for value in batch["value"].to_pylist())
    assert values == [list(range(wanted.start, wanted.end)) for wanted in ranges]


def test_a_reader_may_be_left_in_the_middle(settings: FetchSettings, topic: str) -> None:
    produce(settings.bootstrap, topic, range(3000), **{"batch.size": "2000"})
    small = replace(settings, max_bytes=1, rows_max=10)
    reader = read_range(small, OffsetRange(topic, 0, 0, 3000))
    assert next(reader)["offset"][0].as_py() == 0
    reader.close()  # type: ignore[attr-defined]
    assert read_values(small, OffsetRange(topic, 0, 1000, 3000)) == list(range(1000, 3000))


def test_connections_are_kept_between_reads(settings: FetchSettings, topic: str) -> None:
    produce(settings.bootstrap, topic, range(10))
    own = replace(settings, client_id=f"kept-{topic}")
    read(own, OffsetRange(topic, 0, 0, 10))
    with lent_cluster(own.bootstrap, own.client_id) as first:
        connection = connection_of(first, own, topic)
    read(own, OffsetRange(topic, 0, 0, 10))
    with lent_cluster(own.bootstrap, own.client_id) as second:
        assert second is first
        assert connection_of(second, own, topic) is connection


def connection_of(pooled: PooledCluster, settings: FetchSettings, topic: str) -> WireConnection:
    """What the partition was read over."""
    leader = pooled.cluster.view.leaders[Name(topic, 0)]
    if not settings.local_reads:
        return pooled.cluster.connect(leader.address)
    local = pooled.connect_locally(leader)
    assert local is not None
    return local


def test_a_response_is_not_lost_with_the_connection_after_it(
    settings: FetchSettings, topic: str
) -> None:
    """The request that is sent ahead may fail while a response waits to be decoded."""
    produce(settings.bootstrap, topic, range(2000), **{"batch.size": "2000"})
    small = replace(settings, client_id=f"cut-{topic}", max_bytes=1, rows_max=10)
    read(small, OffsetRange(topic, 0, 0, 1))
    with lent_cluster(small.bootstrap, small.client_id) as pooled:
        wire = connection_of(pooled, small, topic)._socket
    reader = read_range(small, OffsetRange(topic, 0, 0, 2000))
    values = [int(value) for value in next(reader)["value"].to_pylist()]
    assert select.select([wire], [], [], WAIT_S)[0]
    wire.shutdown(socket.SHUT_WR)
    for batch in reader:
        values.extend(int(value) for value in batch["value"].to_pylist())
    assert values == list(range(2000))


def test_files_that_cannot_be_read_come_over_tcp(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(bootstrap, topic, range(1000), **{"batch.size": "2000"})
    read_file, failures = local_files.read_range, []

    def read_or_fail(fd: int, reference: FileReference, allocate: Any) -> memoryview:
        if reference.position:
            failures.append(reference)
            raise OSError(errno.EIO, "the disk fails")
        return read_file(fd, reference, allocate)

    monkeypatch.setattr(local_files, "read_range", read_or_fail)
    small = FetchSettings(bootstrap, client_id=f"failing-{topic}", max_bytes=1)
    assert read_values(small, OffsetRange(topic, 0, 0, 1000)) == list(range(1000))
    assert len(failures) == 2


def test_a_node_that_hands_over_no_files_is_read_over_tcp(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another user, or on another machine, where nobody listens at that name."""
    produce(bootstrap, topic, range(10))
    monkeypatch.setattr(
        "tidelog.spark.connections.find_local_address", lambda *_: "@tidelog-not-here"
    )
    remote = FetchSettings(bootstrap, client_id=f"remote-{topic}")
    assert read_values(remote, OffsetRange(topic, 0, 0, 10)) == list(range(10))
    with lent_cluster(remote.bootstrap, remote.client_id) as pooled:
        assert pooled.connect_locally(pooled.cluster.view.leaders[Name(topic, 0)]) is None


def _wrong_id(leader: PartitionLeader) -> PartitionLeader:
    return replace(leader, topic_id=random_uuid(Random()))


def _newer_epoch(leader: PartitionLeader) -> PartitionLeader:
    return replace(leader, leader_epoch=leader.leader_epoch + 3)


def _other_address(leader: PartitionLeader) -> PartitionLeader:
    return replace(leader, address=Address("127.0.0.1", free_port()))


def _by_name(leader: PartitionLeader) -> PartitionLeader:
    return replace(leader, topic_id=ZERO_UUID)


@pytest.mark.parametrize("change", [_wrong_id, _newer_epoch, _other_address, _by_name])
def test_stale_metadata_is_asked_for_again(
    settings: FetchSettings, topic: str, change: Callable[[PartitionLeader], PartitionLeader]
) -> None:
    produce(settings.bootstrap, topic, range(10))
    assert len(read_values(settings, OffsetRange(topic, 0, 0, 10))) == 10
    with lent_cluster(settings.bootstrap) as pooled:
        pooled.cluster.view.leaders[Name(topic, 0)] = change(
            pooled.cluster.view.leaders[Name(topic, 0)]
        )
    assert read_values(settings, OffsetRange(topic, 0, 0, 10)) == list(range(10))


def test_what_was_deleted_is_a_loss(settings: FetchSettings, topic: str) -> None:
    produce(settings.bootstrap, topic, range(100))
    delete_records_before(settings.bootstrap, topic, 0, 40)
    with pytest.raises(DataLossError, match=rf"{topic}-0, offsets 10 to 90: .* has 40 to 100 now"):
        read(settings, OffsetRange(topic, 0, 10, 90))
    lenient = replace(settings, fail_on_data_loss=False)
    assert read_values(lenient, OffsetRange(topic, 0, 10, 90)) == list(range(40, 90))
    assert read_values(lenient, OffsetRange(topic, 0, 10, 30)) == []


def test_what_was_never_there_is_a_loss(settings: FetchSettings, topic: str) -> None:
    produce(settings.bootstrap, topic, range(10))
    with pytest.raises(DataLossError, match=r"offset 50 is not in the log"):
        read(settings, OffsetRange(topic, 0, 50, 60))
    lenient = replace(settings, fail_on_data_loss=False)
    assert read_values(lenient, OffsetRange(topic, 0, 50, 60)) == []


def test_an_end_that_does_not_come_fails_in_time(settings: FetchSettings, topic: str) -> None:
    produce(settings.bootstrap, topic, range(10))
    hasty = replace(settings, timeout_s=1.0)
    with pytest.raises(
        SparkError, match=rf"{topic}-0: offset 10 .* last stable offset stays at 10"
    ):
        read(hasty, OffsetRange(topic, 0, 0, 11))


def test_any_size_of_a_fetch_can_be_asked_for(settings: FetchSettings, topic: str) -> None:
    produce(settings.bootstrap, topic, range(1))
    largest = replace(settings, max_bytes=2**31 - 1, timeout_s=1.0)
    # So many offsets may have more bytes than a fetch can ask for.
    with pytest.raises(SparkError, match="last stable offset stays at 1"):
        read(largest, OffsetRange(topic, 0, 0, 2**20))


def test_records_that_come_late_are_waited_for(settings: FetchSettings, topic: str) -> None:
    produce(settings.bootstrap, topic, range(10))
    later = threading.Timer(0.7, produce, (settings.bootstrap, topic, range(10, 20)))
    later.start()
    try:
        assert read_values(settings, OffsetRange(topic, 0, 0, 20)) == list(range(20))
    finally:
        later.join()


def test_an_open_transaction_holds_committed_readers(settings: FetchSettings, topic: str) -> None:
    produce(settings.bootstrap, topic, range(5))
    producer = Producer({"bootstrap.servers": settings.bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"5", partition=0)
    producer.flush(WAIT_S)
    uncommitted = replace(settings, read_committed=False)
    assert read_values(uncommitted, OffsetRange(topic, 0, 0, 6)) == list(range(6))
    with pytest.raises(SparkError, match="last stable offset stays at 5"):
        read(replace(settings, timeout_s=1.0), OffsetRange(topic, 0, 0, 6))
    producer.commit_transaction(WAIT_S)
    assert read_values(settings, OffsetRange(topic, 0, 0, 6)) == list(range(6))


def test_a_topic_that_is_not_there_fails_in_time(settings: FetchSettings, topic: str) -> None:
    hasty = replace(settings, timeout_s=0.5)
    with pytest.raises(DataLossError, match=rf"{topic}-0, .* has not been there for"):
        read(hasty, OffsetRange(topic, 0, 0, 1))
    assert read_values(replace(hasty, fail_on_data_loss=False), OffsetRange(topic, 0, 0, 1)) == []


def test_no_broker_fails_in_time(topic: str) -> None:
    nobody = FetchSettings(f"127.0.0.1:{free_port()}", timeout_s=0.5)
    with pytest.raises(SparkError, match=rf"{topic}-0: .*no broker answers at 127\.0\.0\.1"):
        read(nobody, OffsetRange(topic, 0, 0, 1))


def test_a_topic_made_anew_is_a_loss(settings: FetchSettings, topic: str) -> None:
    bootstrap = settings.bootstrap
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, range(3000), **{"batch.size": "2000"})
    reader = read_range(replace(settings, max_bytes=1, rows_max=10), OffsetRange(topic, 0, 0, 3000))
    next(reader)
    delete_topic(bootstrap, topic)
    create_topic(bootstrap, topic)
    with pytest.raises(DataLossError, match=r"deleted and made anew"):
        list(reader)


def test_a_topic_is_known_by_its_id(settings: FetchSettings, topic: str) -> None:
    produce(settings.bootstrap, topic, range(3))
    wanted = OffsetRange(topic, 0, 0, 3)
    assert read_values(settings, wanted) == [0, 1, 2]
    with lent_cluster(settings.bootstrap) as pooled:
        known = pooled.cluster.view.leaders[Name(topic, 0)]
        # What a worker has kept of a topic that is gone says nothing of the one that is there.
        pooled.cluster.view.leaders[Name(topic, 0)] = _wrong_id(known)
    assert sum(map(len, read_range(settings, wanted, known.topic_id))) == 3
    with pytest.raises(TopicMadeAnew, match="deleted and made anew after offset 0"):
        list(read_range(settings, wanted, b"x" * 16))


def test_gaps_that_compaction_left_are_passed_over(tmp_path: Path) -> None:
    quick = {"log.cleaner.backoff.ms": "50", "log.flush.offset.checkpoint.interval.ms": "100"}
    with Broker(data=tmp_path, settings=quick) as broker:
        bootstrap = broker.bootstrap_servers
        create_topic(
            bootstrap,
            "table",
            cleanup_policy="compact",
            segment_bytes="4000",
            min_cleanable_dirty_ratio="0.01",
        )
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        for value in range(200):
            producer.produce("table", b"%d" % value + b"." * 100, key=b"k%d" % (value % 5))
            producer.flush(WAIT_S)
        settings = FetchSettings(bootstrap, include_headers=True, max_bytes=1)
        deadline = time.monotonic() + WAIT_S
        while len(rows := as_rows(read(settings, OffsetRange("table", 0, 0, 200)))) > 60:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        latest = {row["key"]: row["offset"] for row in rows}
        assert latest == {b"k%d" % (value % 5): value for value in range(195, 200)}
        # A range of which nothing is left.
        last = min(row["offset"] for row in rows)
        assert read(settings, OffsetRange("table", 0, 0, last)).num_rows == 0
        close_idle_clusters()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(mode="process", data=tmp_path, port=free_port()) as broker:
        yield broker


def test_a_range_outlives_the_broker(own_broker: Broker) -> None:
    bootstrap = own_broker.bootstrap_servers
    produce(bootstrap, "events", range(20_000), **{"batch.size": "4000"})
    small = FetchSettings(bootstrap, max_bytes=1, rows_max=500)
    reader = read_range(small, OffsetRange("events", 0, 0, 20_000))
    values = [int(value) for value in next(reader)["value"].to_pylist()]
    own_broker.kill()
    back = threading.Timer(0.5, own_broker.start)
    back.start()
    try:
        for batch in reader:
            values.extend(int(value) for value in batch["value"].to_pylist())
    finally:
        back.join()
    assert values == list(range(20_000))


def test_a_kept_connection_may_have_gone(own_broker: Broker) -> None:
    bootstrap = own_broker.bootstrap_servers
    produce(bootstrap, "events", range(10))
    settings = FetchSettings(bootstrap)
    assert len(read_values(settings, OffsetRange("events", 0, 0, 10))) == 10
    own_broker.stop()
    own_broker.start()
    assert len(read_values(settings, OffsetRange("events", 0, 0, 10))) == 10


def test_a_broker_that_stays_away_fails_in_time(own_broker: Broker) -> None:
    bootstrap = own_broker.bootstrap_servers
    produce(bootstrap, "events", range(20_000), **{"batch.size": "4000"})
    small = FetchSettings(bootstrap, max_bytes=1, rows_max=500, timeout_s=1.0)
    reader = read_range(small, OffsetRange("events", 0, 0, 20_000))
    next(reader)
    own_broker.kill()
    with pytest.raises(SparkError, match=r"events-0: offset \d+ of the range 0 to 20000 could not"):
        list(reader)
