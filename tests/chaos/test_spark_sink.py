"""Spark copies a topic while its driver, its workers and brokers are killed: each row once."""

from __future__ import annotations

import hashlib
import itertools
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from tests.spark.topics import create_topic
from tidelog.testing import Broker, Cluster

PARTITIONS = 3
SOURCE, TARGET = "in", "out"
ROWS_PER_SECOND = 1_000
PROGRESS_S_MAX = 180.0
DRAIN_S_MAX = 600.0


class Load:
    """Unique values, produced all the time; a broker that is away is waited for."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "delivery.timeout.ms": 600_000,
            }
        )
        while not self._stop.is_set():
            for _ in range(ROWS_PER_SECOND // 20):
                producer.produce(SOURCE, f"row {self.sent}", partition=self.sent % PARTITIONS)
                self.sent += 1
            producer.poll(0)
            self._stop.wait(0.05)
        assert producer.flush(120) == 0


class Copier:
    """The process of the query, and what it started."""

    def __init__(self, bootstrap: str, folder: Path, target: str = TARGET) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._target = target
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, mode: str = "forever") -> None:
        with (self._folder / "copier.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.chaos.spark_copy_run",
                    self._bootstrap,
                    SOURCE,
                    self._target,
                    str(self._folder / "checkpoint"),
                    mode,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill_driver(self) -> None:
        """kill -9 of Java and of the Python that started it; the workers are left to themselves."""
        assert self._process is not None
        driver = psutil.Process(self._process.pid)
        java = [each for each in driver.children() if "java" in each.name()]
        for each in [*java, driver]:
            each.kill()
        self._process.wait()

    def kill_workers(self) -> int:
        assert self._process is not None
        workers = [
            each
            for each in psutil.Process(self._process.pid).children(recursive=True)
            if _is_worker(each)
        ]
        for each in workers:
            each.kill()
        return len(workers)

    def wait(self, timeout_s: float) -> None:
        assert self._process is not None
        status = self._process.wait(timeout_s)
        assert status == 0, self.last_words()

    def close(self) -> None:
        """Nothing of it is left, whatever became of it."""
        if self._process is None:
            return
        if self._process.poll() is None:
            driver = psutil.Process(self._process.pid)
            for each in [*driver.children(recursive=True), driver]:
                try:
                    each.kill()
                except psutil.NoSuchProcess:
                    continue
        self._process.wait()

    def last_words(self) -> str:
        return (self._folder / "copier.txt").read_text(errors="replace")[-4000:]


def _is_worker(process: psutil.Process) -> bool:
    """A worker is forked from its daemon, and has the same command line."""
    try:
        parent = process.parent()
        return parent is not None and all(
            each.cmdline()[-1:] == ["pyspark.worker"] for each in (process, parent)
        )
    except psutil.NoSuchProcess:
        return False


@dataclass(frozen=True, slots=True)
class Row:
    """A record by the place of the original, and a checksum of its value."""

    origin: str
    checksum: str

    @classmethod
    def original(cls, message: Message) -> Row:
        return cls(f"{message.partition()}-{message.offset()}", _checksum(message))

    @classmethod
    def copy(cls, message: Message) -> Row:
        return cls(message.key().decode(), _checksum(message))


def _checksum(message: Message) -> str:
    return hashlib.sha256(message.value()).hexdigest()


def rows_of(bootstrap: str, topic: str, row: Callable[[Message], Row]) -> Counter[Row]:
    """How often each row is there for a reader of committed records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: Counter[Row] = Counter()
    try:
        consumer.assign(
            [TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)]
        )
        reading = set(range(PARTITIONS))
        while reading:
            message = consumer.poll(60)
            assert message is not None, f"{topic} cannot be read to its end"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF
                reading.discard(message.partition())
            else:
                found[row(message)] += 1
    finally:
        consumer.close()
    return found


def end_offsets(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check"})
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=60)[1]
            for each in range(PARTITIONS)
        )
    finally:
        consumer.close()


def wait_for_progress(bootstrap: str, copier: Copier) -> None:
    """The query writes again."""
    before = end_offsets(bootstrap, TARGET)
    deadline_s = time.monotonic() + PROGRESS_S_MAX
    while end_offsets(bootstrap, TARGET) <= before:
        assert time.monotonic() < deadline_s, f"nothing is written: {copier.last_words()}"
        time.sleep(0.2)


@contextmanager
def copying(bootstrap: str, folder: Path) -> Iterator[Copier]:
    for name in (SOURCE, TARGET):
        create_topic(bootstrap, name, PARTITIONS)
    copier = Copier(bootstrap, folder)
    try:
        yield copier
    finally:
        copier.close()


def run_rounds(
    bootstrap: str,
    folder: Path,
    rounds: int,
    seed: int,
    kill: Callable[[Copier, random.Random], None],
) -> None:
    rng = random.Random(seed)
    with copying(bootstrap, folder) as copier:
        with Load(bootstrap) as load:
            copier.start()
            for _ in range(rounds):
                wait_for_progress(bootstrap, copier)
                time.sleep(rng.uniform(0.0, 1.5))
                kill(copier, rng)
            wait_for_progress(bootstrap, copier)
            load.stop()
        copier.kill_driver()
        copier.start("drain")
        copier.wait(DRAIN_S_MAX)
        source = rows_of(bootstrap, SOURCE, Row.original)
        target = rows_of(bootstrap, TARGET, Row.copy)
        assert len(source) == source.total() == load.sent
        missing, surplus = source - target, target - source
        assert not missing, f"{missing.total()} of {source.total()} rows are missing: {missing}"
        assert not surplus, f"{surplus.total()} rows are there twice: {surplus}"


def kill_driver(broker: Broker, copier: Copier, rng: random.Random) -> None:
    copier.kill_driver()
    copier.start()


def kill_workers(broker: Broker, copier: Copier, rng: random.Random) -> None:
    killed = 0
    for _ in range(rng.randint(1, 3)):
        killed += copier.kill_workers()
        time.sleep(rng.uniform(0.2, 0.8))
    # The query has just written: its workers idle for a minute before Spark lets them go.
    assert killed


def kill_broker(broker: Broker, copier: Copier, rng: random.Random) -> None:
    broker.kill()
    time.sleep(rng.uniform(0.0, 2.0))
    broker.start()


def kill_all(broker: Broker, copier: Copier, rng: random.Random) -> None:
    broker.kill()
    kill_driver(broker, copier, rng)
    broker.start()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("kill", "rounds"),
    [(kill_driver, 8), (kill_workers, 15), (kill_broker, 15), (kill_all, 5)],
    ids=["driver", "workers", "broker", "all"],
)
def test_every_row_is_copied_once(
    tmp_path: Path, kill: Callable[[Broker, Copier, random.Random], None], rounds: int
) -> None:
    with Broker(mode="process", data=tmp_path / "data") as broker:
        run_rounds(
            broker.bootstrap_servers, tmp_path, rounds, seed=rounds, kill=partial(kill, broker)
        )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_row_is_copied_once_while_nodes_are_killed_one_after_the_other(
    tmp_path: Path,
) -> None:
    with Cluster(nodes=3, data=tmp_path / "data") as cluster:
        nodes = itertools.cycle([1, 2, 3])

        def kill_next(copier: Copier, rng: random.Random) -> None:
            node = next(nodes)
            cluster.kill(node)
            time.sleep(rng.uniform(0.0, 2.0))
            cluster.start(node)

        run_rounds(cluster.bootstrap, tmp_path, 12, seed=3, kill=kill_next)
