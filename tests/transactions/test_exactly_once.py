"""Consume, transform, produce under kill -9 of broker and client: the output equals the input."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.transactions.reading import read_topic
from tidelog.testing import Broker

PARTITIONS = 2
ROUND_RECORDS = 200
WAIT_S = 60.0


@contextmanager
def copier(bootstrap: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.transactions.copier", bootstrap]
    process = subprocess.Popen([*command, "source", "target", str(PARTITIONS)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def feed(bootstrap: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(first, first + ROUND_RECORDS):
        producer.produce("source", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def copied(bootstrap: str) -> int:
    return sum(map(len, read_topic(bootstrap, "target", PARTITIONS)))


def wait_for_copies(bootstrap: str, count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while (have := copied(bootstrap)) < count:
        assert time.monotonic() < deadline, f"{have} of {count} records are copied"
        time.sleep(0.05)


def run_rounds(rounds: int, seed: int) -> None:
    """In each round records are fed, and broker or copier is killed while they are copied."""
    rng = random.Random(seed)
    with Broker(mode="process") as broker:
        bootstrap = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        made = admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in ("source", "target")])
        for future in made.values():
            future.result(30)
        fed = 0
        for number in range(rounds):
            feed(bootstrap, fed)
            fed += ROUND_RECORDS
            with copier(bootstrap) as process:
                wait_for_copies(bootstrap, fed - ROUND_RECORDS + rng.randrange(ROUND_RECORDS))
                if number % 2:
                    process.kill()
                else:
                    broker.kill()
                    broker.start()
                    wait_for_copies(bootstrap, fed - rng.randrange(ROUND_RECORDS // 2))
        with copier(bootstrap):
            wait_for_copies(bootstrap, fed)
        values = read_topic(bootstrap, "target", PARTITIONS)
    assert values == [
        [b"%d" % number for number in range(index, fed, PARTITIONS)] for index in range(PARTITIONS)
    ]


@pytest.mark.timeout(400)
def test_a_copy_is_exact_under_kills() -> None:
    run_rounds(3, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_copy_is_exact_under_hundreds_of_kills() -> None:
    run_rounds(300, seed=2)
