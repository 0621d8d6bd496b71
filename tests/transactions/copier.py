"""Copies a topic exactly once: consume, produce and commit the offsets in one transaction.

Run as a program, so that it can be killed:

    python -m tests.transactions.copier BOOTSTRAP SOURCE TARGET PARTITIONS DIARY

Each copy is `<value>@<attempt>`, where the attempt names one transaction. The diary gets a line of
JSON before each transaction (what it will write) and one after it (how it ended, as far as known).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

# librdkafka 2.16 forgets its brokers when all are down, but not the coordinator it had among them,
# and would wait for that one: a single broker's restart needs the old behaviour.
STURDY = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 500, "log_level": 0}
BATCH_RECORDS = 20
WAIT_S = 20.0
PAUSE_S = 0.1
# Every so many transactions one is aborted on purpose.
ABORT_EVERY = 5


class Copier:
    def __init__(
        self, bootstrap: str, source: str, target: str, partitions: int, diary: Path
    ) -> None:
        self.bootstrap = bootstrap
        self.source = source
        self.target = target
        self.partitions = partitions
        self.diary = diary
        self.transactions = 0

    def run(self) -> None:
        """Goes on for ever; whatever fails is begun anew from the committed offsets."""
        while True:
            try:
                self.copy()
            except KafkaException as error:
                print(f"copier begins anew: {error}", file=sys.stderr)  # noqa: T201
                time.sleep(PAUSE_S)

    def copy(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": f"copier-of-{self.source}",
                "linger.ms": 0,
                **STURDY,
            }
        )
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"copiers-of-{self.source}",
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
            places = [TopicPartition(self.source, index) for index in range(self.partitions)]
            committed = consumer.committed(places, WAIT_S)
            consumer.assign(
                [TopicPartition(p.topic, p.partition, max(p.offset, 0)) for p in committed]
            )
            while True:
                messages = consumer.consume(BATCH_RECORDS, timeout=0.2)
                records = [message for message in messages if message.error() is None]
                if records:
                    self.copy_batch(producer, consumer, records)
        finally:
            consumer.close()

    def copy_batch(self, producer: Producer, consumer: Consumer, records: list[Message]) -> None:
        self.transactions += 1
        attempt = f"{os.getpid()}.{self.transactions}"
        copies = [
            (record.partition(), f"{record.value().decode()}@{attempt}") for record in records
        ]
        self.note(attempt, "unknown", copies)
        producer.begin_transaction()
        first: dict[int, int] = {}
        after: dict[int, int] = {}
        for record, (partition, copy) in zip(records, copies, strict=True):
            producer.produce(self.target, copy.encode(), partition=partition)
            first.setdefault(partition, record.offset())
            after[partition] = record.offset() + 1
        producer.send_offsets_to_transaction(
            [TopicPartition(self.source, index, offset) for index, offset in after.items()],
            consumer.consumer_group_metadata(),
            WAIT_S,
        )
        if self.transactions % ABORT_EVERY:
            producer.commit_transaction(WAIT_S)
            self.note(attempt, "ok")
        else:
            producer.abort_transaction(WAIT_S)
            self.note(attempt, "failed")
            for index, offset in first.items():
                consumer.seek(TopicPartition(self.source, index, offset))

    def note(self, attempt: str, outcome: str, copies: list[tuple[int, str]] | None = None) -> None:
        line = json.dumps({"attempt": attempt, "outcome": outcome, "copies": copies or []})
        with self.diary.open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    Copier(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5])).run()
