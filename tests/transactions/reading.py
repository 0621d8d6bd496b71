"""Reading whole topics with a real consumer."""

from __future__ import annotations

import time
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

READ_S_MAX = 30.0


def read_topic(
    bootstrap: str, topic: str, partitions: int = 2, *, isolation: str = "read_committed"
) -> list[list[bytes]]:
    """The values of each partition, up to what is readable now."""
    records = read_records(bootstrap, topic, partitions, isolation=isolation)
    return [[value for _, value in partition] for partition in records]


def read_records(
    bootstrap: str, topic: str, partitions: int = 2, *, isolation: str = "read_committed"
) -> list[list[tuple[int, bytes]]]:
    """The same with the offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid4()}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    values: list[list[tuple[int, bytes]]] = [[] for _ in range(partitions)]
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        at_end: set[int] = set()
        deadline = time.monotonic() + READ_S_MAX
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, f"{topic} cannot be read: {at_end}"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                values[message.partition()].append((message.offset(), message.value()))
            elif message.error().name() == "_PARTITION_EOF":
                at_end.add(message.partition())
    finally:
        consumer.close()
    return values


def wait_for(bootstrap: str, topic: str, count: int, partitions: int = 2) -> list[list[bytes]]:
    """Reads until `count` committed records are there; the markers follow a commit's answer."""
    deadline = time.monotonic() + READ_S_MAX
    while True:
        values = read_topic(bootstrap, topic, partitions)
        if sum(map(len, values)) >= count or time.monotonic() > deadline:
            return values
