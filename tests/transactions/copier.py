"""Copies a topic exactly once: consume, produce and commit the offsets in one transaction.

Run as a program, so that it can be killed:

    python -m tests.transactions.copier BOOTSTRAP SOURCE TARGET PARTITIONS
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

# librdkafka 2.16 forgets its brokers when all are down, but not the coordinator it had among them,
# and would wait for that one: a single broker's restart needs the old behaviour.
STURDY = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 500, "log_level": 0}
BATCH_RECORDS = 20
WAIT_S = 20.0
PAUSE_S = 0.1


def copy(bootstrap: str, source: str, target: str, partitions: int) -> None:
    """Goes on for ever; whatever fails is begun anew from the committed offsets."""
    while True:
        try:
            copy_with_new_clients(bootstrap, source, target, partitions)
        except KafkaException as error:
            print(f"copier begins anew: {error}", file=sys.stderr)  # noqa: T201
            time.sleep(PAUSE_S)


def copy_with_new_clients(bootstrap: str, source: str, target: str, partitions: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"copier-of-{source}",
            "linger.ms": 0,
            **STURDY,
        }
    )
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"copiers-of-{source}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            **STURDY,
        }
    )
    try:
        # Fences the copier before this one, so that the offsets read next are the last.
        producer.init_transactions(WAIT_S)
        places = [TopicPartition(source, index) for index in range(partitions)]
        committed = consumer.committed(places, WAIT_S)
        consumer.assign([TopicPartition(p.topic, p.partition, max(p.offset, 0)) for p in committed])
        while True:
            messages = consumer.consume(BATCH_RECORDS, timeout=0.2)
            records = [message for message in messages if message.error() is None]
            if records:
                copy_batch(producer, consumer, records, target)
    finally:
        consumer.close()


def copy_batch(producer: Producer, consumer: Consumer, records: list[Message], target: str) -> None:
    producer.begin_transaction()
    positions: dict[tuple[str, int], int] = {}
    for record in records:
        producer.produce(target, record.value(), partition=record.partition())
        positions[record.topic(), record.partition()] = record.offset() + 1
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, index, offset) for (topic, index), offset in positions.items()],
        consumer.consumer_group_metadata(),
        WAIT_S,
    )
    producer.commit_transaction(WAIT_S)


if __name__ == "__main__":
    copy(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
