from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition

from tests.transactions.reading import read_topic
from tidelog.testing import Broker

WAIT_S = 30
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0.01",
}
QUICK = {"log.cleaner.backoff.ms": "50", "log.flush.offset.checkpoint.interval.ms": "100"}


def create(bootstrap: str, topic: str, config: dict[str, str] = COMPACTED) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(WAIT_S)


def write(bootstrap: str, topic: str, values: range, **settings: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})
    for value in values:
        producer.produce(topic, b"%d" % value + b"." * 100, key=b"k%d" % (value % 5))
        producer.flush(WAIT_S)  # batches of one, so that segments fill up


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def data_bytes(broker: Broker, topic: str) -> int:
    total_bytes = 0
    for path in (Path(broker.data) / f"{topic}-0").glob("*.log"):
        try:
            total_bytes += path.stat().st_size
        except FileNotFoundError:  # swapped out this very moment
            continue
    return total_bytes


def test_a_compacted_topic_shrinks_to_its_latest_values_and_survives_a_restart() -> None:
    with Broker(settings=QUICK) as broker:
        bootstrap = broker.bootstrap_servers
        create(bootstrap, "table")
        write(bootstrap, "table", range(300))
        full_bytes = 300 * 180

        wait_until(lambda: data_bytes(broker, "table") < full_bytes // 5)

        def latest() -> list[bytes]:
            values = [value.rstrip(b".") for value in read_topic(bootstrap, "table", 1)[0]]
            return values[-5:]

        expected = [b"295", b"296", b"297", b"298", b"299"]
        assert latest() == expected
        broker.stop()
        broker.start()
        assert latest() == expected
        write(bootstrap, "table", range(300, 305))
        assert latest() == [b"300", b"301", b"302", b"303", b"304"]


@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
@pytest.mark.parametrize(
    "due",
    [
        {"max.compaction.lag.ms": "100", "min.cleanable.dirty.ratio": "1"},
        {"segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"},
    ],
    ids=["by time", "by size"],
)
def test_compaction_does_not_wait_for_the_next_timed_checkpoint(
    due: dict[str, str], durability: str
) -> None:
    settings = {
        "log.cleaner.backoff.ms": "50",
        "log.flush.offset.checkpoint.interval.ms": "1000000000",
    }
    with Broker(settings=settings) as broker:
        bootstrap = broker.bootstrap_servers
        create(bootstrap, "table", {"cleanup.policy": "compact", "durability": durability, **due})
        write(bootstrap, "table", range(100))

        def is_compacted() -> bool:
            write(bootstrap, "table", range(100, 105))  # time rolls a segment with an append
            return len(read_topic(bootstrap, "table", 1)[0]) < 50

        wait_until(is_compacted)
        broker.stop()
        broker.start()
        values = [value.rstrip(b".") for value in read_topic(bootstrap, "table", 1)[0]]
        assert values[-5:] == [b"100", b"101", b"102", b"103", b"104"]


def test_every_client_reads_what_compaction_leaves() -> None:
    """Gaps, empty batches that hold a producer's place, tombstones with a delete horizon."""
    with Broker(settings=QUICK) as broker:
        bootstrap = broker.bootstrap_servers
        create(bootstrap, "table")
        for first in range(0, 250, 50):  # each a producer of its own, whose last batch stays
            write(bootstrap, "table", range(first, first + 50), **{"enable.idempotence": "true"})
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("table", None, key=b"k0")
        producer.flush(WAIT_S)
        write(bootstrap, "table", range(251, 255))
        write(bootstrap, "table", range(256, 300))
        wait_until(lambda: data_bytes(broker, "table") < 300 * 180 // 5)

        expected = {b"k%d" % (value % 5): b"%d" % value for value in range(295, 300)}
        # The cleaner goes on meanwhile: what is read differs, what it comes to does not.
        assert table_by_kafka_python(bootstrap) == expected
        assert asyncio.run(table_by_aiokafka(bootstrap)) == expected
        values = [value.rstrip(b".") for value in read_topic(bootstrap, "table", 1)[0][-5:]]
        assert values == list(expected.values())


LAST_OFFSET = 250 + 1 + 4 + 44 - 1


def table_by_kafka_python(bootstrap: str) -> dict[bytes, bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=WAIT_S * 1000)
    table = {}
    try:
        consumer.assign([TopicPartition("table", 0)])
        consumer.seek_to_beginning()
        for record in consumer:
            table[record.key] = record.value.rstrip(b".") if record.value else b""
            if record.offset == LAST_OFFSET:
                break
    finally:
        consumer.close()
    return table


async def table_by_aiokafka(bootstrap: str) -> dict[bytes, bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    table = {}
    try:
        consumer.assign([aiokafka.TopicPartition("table", 0)])
        await consumer.seek_to_beginning()
        while True:
            record = await asyncio.wait_for(consumer.getone(), WAIT_S)
            table[record.key] = record.value.rstrip(b".") if record.value else b""
            if record.offset == LAST_OFFSET:
                return table
    finally:
        await consumer.stop()


def test_coordinators_load_from_compacted_topics() -> None:
    """Offsets and transactions are read back from logs that the cleaner has been at."""
    settings = {
        **QUICK,
        "offsets.topic.segment.bytes": "4000",
        "transaction.state.log.segment.bytes": "4000",
        "transaction.state.log.num.partitions": "1",
    }
    with Broker(settings=settings) as broker:
        bootstrap = broker.bootstrap_servers
        create(bootstrap, "plain")
        writer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "pay", "linger.ms": 0}
        )
        writer.init_transactions(WAIT_S)
        for number in range(60):
            writer.begin_transaction()
            writer.produce("plain", b"%d" % number, key=b"k")
            writer.commit_transaction(WAIT_S)
        name = "__transaction_state"
        # Three records of about 130 bytes for each transaction.
        wait_until(lambda: data_bytes(broker, name) < 60 * 3 * 130 // 2)
        broker.stop()
        broker.start()
        again = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "pay", "linger.ms": 0}
        )
        again.init_transactions(WAIT_S)
        again.begin_transaction()
        again.produce("plain", b"last", key=b"k")
        again.commit_transaction(WAIT_S)
        wait_until(lambda: read_topic(bootstrap, "plain", 1)[0][-1:] == [b"last"])
