"""A running node on a disk that fills up or breaks: errors, no lies, and it goes on when it can.

The disk is real; what it refuses is injected below the node, where storage calls the system.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.compatibility.calls import batch, fetch_request, produce_request
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
        # With a snapshot nothing in the metadata tells of the topic any more.
        node = broker.node
        snapshotted = Event()

        def snapshot() -> None:
            node.metadata.snapshot().when_done(lambda _: snapshotted.set())

        node.reactor.post(snapshot)
        assert snapshotted.wait(30)
        broker.stop()
        disk.heal()
        broker.start()
        (stray,) = directories[1].glob("orders-*")
        assert stray.name.endswith("-stray")
        assert (stray / f"{0:020}.log").stat().st_size > 0
