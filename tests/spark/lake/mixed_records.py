"""Records of all kinds in a topic, and what a plain consumer reads from it."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

_QUIET = {"log_level": 0}

Record = dict[str, Any]
_numbers = itertools.count()


def produce(
    bootstrap: str, topic: str, partitions: int, count: int, seed: int, value_bytes: int = 40
) -> None:
    """Records with and without keys, values and headers, over three days."""
    rng = random.Random(seed)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": "lz4", **_QUIET}
    )
    now_ms = int(time.time() * 1000)
    for _ in range(count):
        number = next(_numbers)
        producer.produce(
            topic,
            value=None if rng.random() < 0.1 else b"%d " % number + rng.randbytes(value_bytes),
            key=None if rng.random() < 0.1 else b"key %d" % rng.randint(0, 50),
            headers=[("number", b"%d" % number), ("none", None)] if rng.random() < 0.3 else None,
            partition=rng.randrange(partitions),
            timestamp=now_ms - rng.choice([0, 0, 0, 1, 2]) * 86_400_000,
        )
        producer.poll(0)
    assert producer.flush(30) == 0


def ends(bootstrap: str, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
    """The first and the next offset of each partition."""
    consumer = _consumer(bootstrap)
    try:
        return {
            each: consumer.get_watermark_offsets(TopicPartition(topic, each), 30)
            for each in range(partitions)
        }
    finally:
        consumer.close()


def consume(bootstrap: str, topic: str, partitions: int) -> dict[int, list[Record]]:
    """All committed records by partition, as a plain consumer reads them."""
    there = ends(bootstrap, topic, partitions)
    left = {each for each, (low, high) in there.items() if low < high}
    found: dict[int, list[Record]] = {each: [] for each in range(partitions)}
    consumer = _consumer(bootstrap)
    deadline_s = time.monotonic() + 60
    try:
        consumer.assign([TopicPartition(topic, each, there[each][0]) for each in left])
        while left:
            assert time.monotonic() < deadline_s, f"partitions {left} were not read to their ends"
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    found[message.partition()].append(_record(message))
            for position in consumer.position([TopicPartition(topic, each) for each in left]):
                if position.offset >= there[position.partition][1]:
                    left.discard(position.partition)
    finally:
        consumer.close()
    return found


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **_QUIET,
        }
    )


def _record(message: Message) -> Record:
    headers = message.headers()
    return {
        "offset": message.offset(),
        "key": message.key(),
        "value": message.value(),
        "timestamp_ms": message.timestamp()[1],
        "headers": None if not headers else [(name, value) for name, value in headers],
    }
