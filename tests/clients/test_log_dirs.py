"""A replica moves between log directories while clients write to it and read from it."""

import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from kafka import KafkaAdminClient
from kafka.errors import LogDirNotFoundError, NoError

from tidelog.testing import Broker

TOPIC = "orders"


class Writer:
    """Writes numbers until it is told to stop; idempotent, so that each comes once or fails."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._is_stopping = threading.Event()
        self.sent = 0
        self.failures: list[KafkaError] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            for _ in range(20):
                value = b"%d" % self.sent + bytes(500)
                self._producer.produce(TOPIC, value, partition=0, on_delivery=self._report)
                self.sent += 1
            self._producer.poll(0.005)

    def _report(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failures.append(error)

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join()
        assert self._producer.flush(30) == 0
        assert self.failures == []


def read_numbers(bootstrap: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "numbers"})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    numbers: list[int] = []
    deadline = time.monotonic() + 30
    while len(numbers) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None
            numbers.append(int((message.value() or b"").rstrip(b"\0")))
    consumer.close()
    return numbers


def replicas(admin: Any) -> list[tuple[str, bool]]:
    """The directory of each replica of the partition, and whether it is a future one."""
    (broker,) = admin.describe_log_dirs({TOPIC: [0]})
    return [
        (directory["log_dir"], partition["is_future_key"])
        for directory in broker["log_dirs"]
        for topic in directory["topics"]
        for partition in topic["partitions"]
    ]


def test_a_replica_moves_under_load_and_survives_a_kill(tmp_path: Path) -> None:
    directories = [tmp_path / "first", tmp_path / "second"]
    settings = {"log.dirs": ",".join(map(str, directories)), "log.segment.bytes": "1048576"}
    with Broker(mode="process", data=tmp_path, settings=settings) as broker:
        bootstrap = broker.bootstrap_servers
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics({TOPIC: {"num_partitions": 1, "replication_factor": 1}})
        writer = Writer(bootstrap)
        seen_future = False
        for _ in range(2):
            time.sleep(0.5)
            ((here, _),) = [each for each in replicas(admin) if not each[1]]
            there = next(str(each) for each in directories if str(each) != here)
            asked = admin.alter_replica_log_dirs({(TOPIC, 0, 1): there})
            assert list(asked.values()) == [NoError]
            deadline = time.monotonic() + 30
            while (now := replicas(admin)) != [(there, False)]:
                seen_future = seen_future or (there, True) in now
                assert time.monotonic() < deadline, now
                time.sleep(0.05)
        assert seen_future
        (refused,) = admin.alter_replica_log_dirs({(TOPIC, 0, 1): str(tmp_path)}).values()
        assert refused is LogDirNotFoundError
        writer.stop()
        admin.close()
        assert read_numbers(bootstrap, writer.sent) == list(range(writer.sent))
        broker.kill()
        broker.start()
        assert read_numbers(bootstrap, writer.sent) == list(range(writer.sent))
    assert len([*tmp_path.glob(f"*/{TOPIC}-0")]) == 1
    assert [*tmp_path.glob("*/*-future"), *tmp_path.glob("*/*-moved")] == []
