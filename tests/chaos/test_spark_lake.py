"""kill -9 of workers, broker and driver while a topic is archived: the lake is the topic.

The archive follows a producer that never stops. In each life of the driver Python processes of
Spark are killed, then their daemon, the broker, and the driver with all its processes, while batch
follows batch. At the end every offset must be in the lake once, with the bytes that a consumer
reads.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.spark.lake import mixed_records
from tests.spark.lake.test_archive import PARTITIONS, held
from tests.spark.topics import create_topic
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.reading import LakeTable
from tidelog.spark.lake.table import FORMATS
from tidelog.testing import Broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

TOPIC = "kept"
LIVES = 3
WORKER_KILLS = 3
WAIT_S = 180.0

# The archive keeps up with this on a busy machine: what it is behind is waited for at the end.
_RECORDS_AT_ONCE = 50
_PRODUCER_PAUSE_S = 0.05

# The daemon of the Python processes that run tasks, which are forks of it.
_WORKER_MODULE = "tidelog.spark.runtime.python_daemon"

_DRIVER = """
import sys
from tidelog.spark import lake, session
path, topic, bootstrap, format_name, how = sys.argv[1:]
lake.archive(
    [topic],
    path,
    bootstrap=bootstrap,
    spark=session("chaos", master="local[2,4]", conf={"spark.driver.memory": "1g"}),
    format=format_name,
    follow=how == "follow",
    interval_s=0,
    offsets_per_batch=5000 if how == "follow" else 100_000,
    compact_every=4,
)
"""


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_lake_is_the_topic_whatever_is_killed(tmp_path: Path, format_name: str) -> None:
    rng = random.Random(format_name)
    lake = tmp_path / "lake"
    with Broker(mode="process") as broker:
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        with _producing(broker.bootstrap_servers, rng.random()):
            for _ in range(LIVES):
                with _driver(tmp_path, lake, broker, format_name, "follow") as driver:
                    _wait_for_progress(lake, driver)
                    for _ in range(WORKER_KILLS):
                        time.sleep(rng.uniform(0, 1))
                        _kill_worker(driver, rng)
                    _kill_daemon(driver)
                    _wait_for_progress(lake, driver)
                    time.sleep(rng.uniform(0, 1))
                    broker.kill()
                    time.sleep(rng.uniform(0, 2))
                    broker.start()
                    _wait_for_progress(lake, driver)
                    time.sleep(rng.uniform(0, 2))
        with _driver(tmp_path, lake, broker, format_name, "once") as driver:
            assert driver.wait(WAIT_S) == 0, _last_words(tmp_path)
        ends = mixed_records.ends(broker.bootstrap_servers, TOPIC, PARTITIONS)
        assert LakeTable(lake).coverage(TOPIC) == ends
        everything = mixed_records.consume(broker.bootstrap_servers, TOPIC, PARTITIONS)
    assert held(lake, TOPIC) == everything
    if format_name == "delta":
        plain = DeltaTable(str(lake)).to_pyarrow_dataset()
    else:
        plain = ds.dataset(lake, format="parquet", partitioning="hive")
    assert plain.count_rows() == sum(map(len, everything.values()))


def test_an_archive_that_follows_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    with Broker(mode="process") as broker:
        bootstrap = broker.bootstrap_servers
        create_topic(bootstrap, TOPIC, PARTITIONS)
        mixed_records.produce(bootstrap, TOPIC, PARTITIONS, 1000, seed=1)
        command = [sys.executable, "-m", "tidelog", "lake", "archive", TOPIC, "--json"]
        command += ["--to", str(tmp_path / "lake"), "--follow", "--interval", "1"]
        driver = subprocess.Popen(
            [*command, "--bootstrap", bootstrap, "--master", "local[2,4]"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            _wait_until(lambda: _archived(tmp_path / "lake") == 1000, "the first batch")
            mixed_records.produce(bootstrap, TOPIC, PARTITIONS, 500, seed=2)
            _wait_until(lambda: _archived(tmp_path / "lake") == 1500, "what came later")
            driver.send_signal(signal.SIGTERM)
            said, _ = driver.communicate(timeout=WAIT_S)
            assert driver.returncode == 0
            assert json.loads(said)["records"] == 1500
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)


@contextmanager
def _producing(bootstrap: str, seed: float) -> Iterator[None]:
    """Records of all sizes until the block ends; all of them are acknowledged then."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        rng = random.Random(seed)
        settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 10,
            "log_level": 0,
        }
        try:
            producer = Producer(settings)
            while not stop.wait(_PRODUCER_PAUSE_S):
                for _ in range(_RECORDS_AT_ONCE):
                    producer.produce(
                        TOPIC,
                        value=rng.randbytes(rng.choice([0, 10, 100, 2000])),
                        key=rng.randbytes(8) if rng.random() < 0.5 else None,
                        partition=rng.randrange(PARTITIONS),
                    )
                producer.poll(0)
            assert producer.flush(120) == 0
        except BaseException as error:  # noqa: BLE001  it is raised again in the test's thread
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(150)
    assert not failures
    assert not thread.is_alive()


@contextmanager
def _driver(
    folder: Path, lake: Path, broker: Broker, format_name: str, how: str
) -> Iterator[subprocess.Popen[bytes]]:
    """An archive in a process group of its own, of which nothing is left after the block."""
    command = [sys.executable, "-c", _DRIVER, str(lake), TOPIC, broker.bootstrap_servers]
    with open(folder / "driver.log", "ab") as output:
        driver = subprocess.Popen(
            [*command, format_name, how],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield driver
    finally:
        processes = _below(driver)
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        for each in processes:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        driver.wait()


def _kill_worker(driver: subprocess.Popen[bytes], rng: random.Random) -> None:
    """Kill one of the Python processes that run tasks, once there is one."""
    _wait_until(lambda: bool(_workers(driver)[1]) or driver.poll() is not None, "a worker")
    _, workers = _workers(driver)
    if workers:
        with suppress(psutil.NoSuchProcess):
            rng.choice(workers).kill()


def _kill_daemon(driver: subprocess.Popen[bytes]) -> None:
    """Kill what forks the workers; they go on without it, and Spark starts another for new ones."""
    for each in _workers(driver)[0]:
        with suppress(psutil.NoSuchProcess):
            each.kill()


def _workers(
    driver: subprocess.Popen[bytes],
) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """The daemon of the tasks, if it runs, and its forks.

    Spark has daemons of its own for planning, which are idle once a query runs.
    """
    found: dict[int, tuple[psutil.Process, int]] = {}
    for each in _below(driver):
        with suppress(psutil.NoSuchProcess):
            if _WORKER_MODULE in each.cmdline():
                found[each.pid] = each, each.ppid()
    daemons = [each for each, parent in found.values() if parent not in found]
    return daemons, [each for each, parent in found.values() if parent in found]


def _below(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return psutil.Process(driver.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _wait_for_progress(lake: Path, driver: subprocess.Popen[bytes]) -> None:
    """Wait until the archive has added some batches."""
    target = _archived(lake) + 5000
    _wait_until(
        lambda: _archived(lake) >= target or driver.poll() is not None, "progress of the archive"
    )
    # A driver that has ended did so because of a kill; the next life goes on.


def _archived(lake: Path) -> int:
    try:
        return sum(end for _, end in LakeTable(lake).coverage(TOPIC).values())
    except LakeError:
        return 0


def _wait_until(is_done: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < deadline_s, f"not within {WAIT_S:g} s: {what}"
        time.sleep(0.1)


def _last_words(folder: Path) -> str:
    return (folder / "driver.log").read_bytes()[-3000:].decode(errors="replace")
