"""Topics and records for tests, made with a client that is not ours."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

WAIT_S = 60.0


def create_topic(bootstrap: str, name: str, partitions: int = 1, **settings: str) -> None:
    topic = NewTopic(
        name,
        num_partitions=partitions,
        replication_factor=-1,
        config={key.replace("_", "."): value for key, value in settings.items()},
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    _finish(admin.create_topics([topic]))


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    _finish(admin.delete_topics([name]))


def add_partitions(bootstrap: str, name: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    _finish(admin.create_partitions([NewPartitions(name, total)]))


def delete_records_before(bootstrap: str, name: str, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    _finish(admin.delete_records([TopicPartition(name, partition, offset)]))


def publish(
    bootstrap: str,
    topic: str,
    values: Iterable[str | bytes | None],
    *,
    partition: int = 0,
    key: str | None = None,
    timestamp_ms: Callable[[int], int] | None = None,
    headers: list[tuple[str, bytes]] | None = None,
) -> None:
    """Write values to one partition, and wait until they are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for at, value in enumerate(values):
        more: dict[str, Any] = {}
        if timestamp_ms is not None:
            more["timestamp"] = timestamp_ms(at)
        producer.produce(topic, value=value, key=key, partition=partition, headers=headers, **more)
    assert producer.flush(WAIT_S) == 0


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """The offsets of a group, as any tool sees them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    response = asked[group].result(WAIT_S)
    return {(row.topic, row.partition): row.offset for row in response.topic_partitions}


def eventually(check: Callable[[], bool], what: str, wait_s: float = WAIT_S) -> None:
    deadline_s = time.monotonic() + wait_s
    while not check():
        assert time.monotonic() < deadline_s, f"not within {wait_s:g} s: {what}"
        time.sleep(0.05)


def _finish(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(WAIT_S)
