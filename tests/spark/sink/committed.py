"""What a plain consumer of committed records sees of a topic."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

WAIT_S = 60


@dataclass(frozen=True)
class Seen:
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = field(default=())


def committed_records(bootstrap: str, topic: str) -> list[Seen]:
    """All that a reader of committed records gets before it comes to the end, or to a transaction
    that is open."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        partitions = consumer.list_topics(topic, WAIT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
        reading = set(partitions)
        seen = []
        while reading:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"nothing of {reading} within {WAIT_S} s"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF
                reading.discard(message.partition())
                continue
            seen.append(
                Seen(
                    message.partition(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                )
            )
        return seen
    finally:
        consumer.close()


def committed_values(bootstrap: str, topic: str) -> list[str]:
    """The values as text, sorted: a row that is there twice is in the list twice."""
    return sorted((each.value or b"").decode() for each in committed_records(bootstrap, topic))


def assert_committed(bootstrap: str, topic: str, expected: list[str]) -> None:
    """Exactly these values are there, each once; the end of a transaction shows a moment later."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        values = committed_values(bootstrap, topic)
        if len(values) >= len(expected) or time.monotonic() > deadline_s:
            assert values == sorted(expected)
            return
        time.sleep(0.02)
