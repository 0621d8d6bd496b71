"""Consume, transform, produce under kill -9 of broker and client: the output equals the input."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.transactions.reading import read_records, read_topic
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing import Broker
from tidelog.testing.history import Operation, Outcome, Polled, Send, check_history

PARTITIONS = 2
ROUND_RECORDS = 200
WAIT_S = 60.0


@contextmanager
def copier(bootstrap: str, diary: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.transactions.copier", bootstrap]
    process = subprocess.Popen([*command, "source", "target", str(PARTITIONS), str(diary)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def feed(bootstrap: str, first: int) -> Operation:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    operation = Operation("feeder")

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        place = TopicPartition("source", message.partition())
        operation.sends.append(Send(place, message.value(), message.offset()))

    for number in range(first, first + ROUND_RECORDS):
        partition = number % PARTITIONS
        producer.produce("source", b"%d" % number, partition=partition, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    operation.sends.sort(key=lambda send: number_of(send.value))  # as they were sent
    return operation


def number_of(value: object) -> int:
    """What a record says, of the source or copied."""
    assert isinstance(value, bytes)
    return int(value.split(b"@")[0])


def wait_for_copies(bootstrap: str, count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while (have := sum(map(len, read_topic(bootstrap, "target", PARTITIONS)))) < count:
        assert time.monotonic() < deadline, f"{have} of {count} records are copied"
        time.sleep(0.05)


def operations_of(diary: Path) -> list[Operation]:
    """What the copiers did, one transaction each."""
    operations: dict[str, Operation] = {}
    for line in diary.read_text().splitlines():
        entry = json.loads(line)
        attempt = entry["attempt"]
        operation = operations.setdefault(attempt, Operation(f"copier {attempt}"))
        operation.outcome = Outcome(entry["outcome"])
        operation.sends += [
            Send(TopicPartition("target", partition), copy.encode())
            for partition, copy in entry["copies"]
        ]
    return list(operations.values())


def read_all(bootstrap: str, topic: str) -> Operation:
    operation = Operation(f"reader of {topic}")
    for partition, records in enumerate(read_records(bootstrap, topic, PARTITIONS)):
        place = TopicPartition(topic, partition)
        operation.polls.append([Polled(place, offset, value) for offset, value in records])
    return operation


def run_rounds(rounds: int, seed: int, diary: Path) -> None:
    """In each round records are fed, and broker or copier is killed while they are copied."""
    rng = random.Random(seed)
    history: list[Operation] = []
    with Broker(mode="process") as broker:
        bootstrap = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        made = admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in ("source", "target")])
        for future in made.values():
            future.result(30)
        fed = 0
        for number in range(rounds):
            history.append(feed(bootstrap, fed))
            fed += ROUND_RECORDS
            with copier(bootstrap, diary) as process:
                wait_for_copies(bootstrap, fed - ROUND_RECORDS + rng.randrange(ROUND_RECORDS))
                if number % 2:
                    process.kill()
                else:
                    broker.kill()
                    broker.start()
                    wait_for_copies(bootstrap, fed - rng.randrange(ROUND_RECORDS // 2))
        with copier(bootstrap, diary):
            wait_for_copies(bootstrap, fed)
        target = read_all(bootstrap, "target")
        history += [*operations_of(diary), read_all(bootstrap, "source"), target]
    check_history(history).raise_for_anomalies()
    copied = [[number_of(row.value) for row in poll] for poll in target.polls]
    assert copied == [list(range(index, fed, PARTITIONS)) for index in range(PARTITIONS)]


@pytest.mark.timeout(400)
def test_a_copy_is_exact_under_kills(tmp_path: Path) -> None:
    run_rounds(3, 1, tmp_path / "diary")


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_copy_is_exact_under_hundreds_of_kills(tmp_path: Path) -> None:
    run_rounds(300, 2, tmp_path / "diary")
