"""A running node on a disk that fills up or breaks: errors, no lies, and it goes on when it can.

The disk is real; what it refuses is injected below the node, where storage calls the system.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.compatibility.calls import batch, fetch_request, produce_request
from tidelog.cluster.metadata.records.settings import ProducerIdsRecord
from tidelog.cluster.metadata.replicated_log import RESERVE_NAME
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import decode_batches
from tidelog.testing import Broker
from tidelog.testing.wire import WireClient
from tidelog.world.operating_system.files import OsFiles

GROWING = ("pwrite", "pwritev", "fallocate")
SYNCING = ("fsync", "fdatasync")


class Disk:
    """Refuses calls on the files under a directory while it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._refused: tuple[str, ...] = ()
        self._error = 0
        self._under = ""
        for name in GROWING + SYNCING:
            call = getattr(OsFiles, name)
            monkeypatch.setattr(OsFiles, name, staticmethod(self._checked(name, call)))

    def _checked(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(fd: int, *arguments: Any) -> Any:
            if name in self._refused and os.readlink(f"/proc/self/fd/{fd}").startswith(self._under):
                raise OSError(self._error, os.strerror(self._error))
            return call(fd, *arguments)

        return checked

    def fill_up(self, under: Path) -> None:
        self._refused, self._error, self._under = GROWING, errno.ENOSPC, f"{under}/"

    def fail_syncs(self, under: Path) -> None:
        self._refused, self._error, self._under = SYNCING, errno.EIO, f"{under}/"

    def heal(self) -> None:
        self._refused = ()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def connect(broker: Broker) -> WireClient:
    return WireClient("127.0.0.1", broker.port)


def create(client: WireClient, name: str, partitions: int = 1) -> int:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    return int(answer.topics[0].error_code)


def publish(client: WireClient, value: bytes, partition: int = 0) -> int:
    answer = client.call(produce_request("orders", batch(value), partition=partition), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


def values(client: WireClient, partition: int = 0) -> list[bytes | None]:
    row = client.call(fetch_request("orders", 0, partition=partition), 12).responses[0]
    return [
        record.value
        for _, records in decode_batches(row.partitions[0].records)
        for record in records
    ]


def test_a_full_disk_refuses_records_until_there_is_room(tmp_path: Path, disk: Disk) -> None:
    data = tmp_path / "data"
    acknowledged: list[bytes] = []
    with Broker(data=data, settings={"durability": "fsync"}) as broker:
        with connect(broker) as client:
            assert create(client, "orders") == 0
            for turn in range(3):
                disk.heal()
                for number in range(10):
                    value = b"%d %d" % (turn, number)
                    assert publish(client, value) == 0
                    acknowledged.append(value)
                disk.fill_up(data)
                for _ in range(5):
                    assert publish(client, b"no room") == ErrorCode.KAFKA_STORAGE_ERROR
                assert create(client, f"new-{turn}") == ErrorCode.KAFKA_STORAGE_ERROR
                assert values(client) == acknowledged
            disk.heal()
            assert create(client, "new-0") == 0
        broker.stop()
        broker.start()
        with connect(broker) as client:
            assert values(client) == acknowledged
            assert publish(client, b"more") == 0


class SmallDisk:
    """Counts what files under a directory grow and shrink by, and refuses what does not fit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, under: Path) -> None:
        self.room_bytes: int | None = None
        self._under = f"{under}/"
        for name in ("pwrite", "pwritev", "fallocate", "ftruncate", "unlink"):
            call = getattr(OsFiles, name)
            counted = self._counted_unlink if name == "unlink" else partial(self._counted, name)
            monkeypatch.setattr(OsFiles, name, staticmethod(partial(counted, call)))

    def _counted(self, name: str, call: Callable[..., Any], fd: int, *arguments: Any) -> Any:
        if self.room_bytes is None or not os.readlink(f"/proc/self/fd/{fd}").startswith(
            self._under
        ):
            return call(fd, *arguments)
        size_bytes = os.fstat(fd).st_size
        if name == "pwrite":
            end = arguments[1] + len(arguments[0])
        elif name == "pwritev":
            end = arguments[1] + sum(map(len, arguments[0]))
        else:
            end = sum(arguments)
        growth_bytes = end - size_bytes if name == "ftruncate" else max(0, end - size_bytes)
        if growth_bytes > self.room_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room_bytes -= growth_bytes
        return call(fd, *arguments)

    def _counted_unlink(self, call: Callable[..., Any], path: Any) -> Any:
        size_bytes = os.stat(path).st_size if str(path).startswith(self._under) else 0
        call(path)
        if self.room_bytes is not None:
            self.room_bytes += size_bytes


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_deleting_a_topic_makes_room_on_the_full_disk_of_a_single_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion is a record of the metadata, which is on the same disk."""
    data = tmp_path / "data"
    disk = SmallDisk(monkeypatch, data)
    with Broker(data=data, settings={"durability": "fsync"}) as broker, connect(broker) as client:
        assert create(client, "orders") == 0
        assert create(client, "large") == 0
        request = produce_request("large", batch(bytes(200_000)))
        assert client.call(request, 9).responses[0].partition_responses[0].error_code == 0
        assert publish(client, b"before") == 0
        wait_until((data / "__cluster_metadata-0" / RESERVE_NAME).exists)
        disk.room_bytes = 0
        assert publish(client, b"no room") == ErrorCode.KAFKA_STORAGE_ERROR
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="large")], timeout_ms=10_000)
        assert client.call(deletion, 6).responses[0].error_code == 0
        wait_until(lambda: not list(data.glob("large*")))
        assert publish(client, b"after") == 0
        assert values(client) == [b"before", b"after"]
        disk.room_bytes = None


def test_a_node_stops_on_a_full_disk_and_starts_with_all_records(
    tmp_path: Path, disk: Disk
) -> None:
    data = tmp_path / "data"
    with Broker(data=data, settings={"durability": "fsync"}) as broker:
        with connect(broker) as client:
            assert create(client, "orders") == 0
            assert publish(client, b"kept") == 0
        disk.fill_up(data)
        broker.stop()
        disk.heal()
        broker.start()
        with connect(broker) as client:
            assert values(client) == [b"kept"]


def test_a_broken_disk_takes_only_its_partitions_along(tmp_path: Path, disk: Disk) -> None:
    directories = [tmp_path / "first", tmp_path / "second"]
    settings = {"durability": "fsync", "log.dirs": ",".join(map(str, directories))}
    with Broker(data=tmp_path, settings=settings) as broker:
        with connect(broker) as client:
            assert create(client, "orders", partitions=2) == 0
            for partition in range(2):
                assert publish(client, b"before", partition) == 0
            broken = next(p for p in range(2) if (directories[1] / f"orders-{p}").exists())
            disk.fail_syncs(directories[1])
            assert publish(client, b"lost", broken) == ErrorCode.KAFKA_STORAGE_ERROR
            assert publish(client, b"lost too", broken) == ErrorCode.KAFKA_STORAGE_ERROR
            assert publish(client, b"after", 1 - broken) == 0
            assert values(client, 1 - broken) == [b"before", b"after"]
        disk.heal()
        broker.stop()
        broker.start()
        with connect(broker) as client:
            assert values(client, 1 - broken) == [b"before", b"after"]
            assert values(client, broken)[:1] == [b"before"]
            assert publish(client, b"again", broken) == 0


def test_a_log_of_a_topic_that_was_deleted_after_its_disk_broke_is_set_aside(
    tmp_path: Path, disk: Disk
) -> None:
    directories = [tmp_path / "first", tmp_path / "second"]
    settings = {"durability": "fsync", "log.dirs": ",".join(map(str, directories))}
    with Broker(data=tmp_path, settings=settings) as broker:
        with connect(broker) as client:
            assert create(client, "orders", partitions=2) == 0
            assert [publish(client, b"old", partition) for partition in range(2)] == [0, 0]
            broken = next(p for p in range(2) if (directories[1] / f"orders-{p}").exists())
            disk.fail_syncs(directories[1])
            assert publish(client, b"lost", broken) == ErrorCode.KAFKA_STORAGE_ERROR
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(name="orders")], timeout_ms=10_000
            )
            assert client.call(request, 6).responses[0].error_code == 0
        # With two snapshots nothing in the metadata tells of the topic any more.
        metadata = broker.node.metadata
        is_forgotten = Event()

        def forget() -> None:
            change = ProducerIdsRecord(next_producer_id=1_000_000)
            snapshots = (
                metadata.snapshot()
                .then_wait(lambda _: metadata.propose([change]).committed)
                .then_wait(lambda _: metadata.snapshot())
            )
            snapshots.then(lambda _: is_forgotten.set())

        broker.node.reactor.post(forget)
        assert is_forgotten.wait(30)
        broker.stop()
        disk.heal()
        broker.start()
        (stray,) = directories[1].glob("orders-*")
        assert stray.name.endswith("-stray")
        assert (stray / f"{0:020}.log").stat().st_size > 0
