"""What is asked of the controller, while the disk of the metadata is slow or fails."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.running_node import RunningNode
from tidelog.cluster.metadata.image import MetadataDelta, MetadataImage
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import WireClient
from tidelog.world.operating_system.files import OsFiles

CREATE_TOPICS_VERSION = 7
TOPIC, BROKER_LOGGER = 2, 8


class MetadataDisk(OsFiles):
    """A disk whose syncs of the metadata log can be held up, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.is_syncing = threading.Event()
        self.fails = False
        self.syncs = 0

    def held_sync(self, fd: int, /) -> None:
        if "__cluster_metadata" in os.readlink(f"/proc/self/fd/{fd}"):
            self.is_syncing.set()
            assert self.may_sync.wait(30)
            self.syncs += 1
            if self.fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fdatasync(fd)

    fdatasync = held_sync  # type: ignore[assignment]

    def hold(self) -> None:
        self.may_sync.clear()
        self.is_syncing.clear()

    def release(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.may_sync.set()


@pytest.fixture
def disk() -> MetadataDisk:
    return MetadataDisk()


@pytest.fixture
def node(tmp_path: Path, disk: MetadataDisk) -> Iterator[RunningNode]:
    node = RunningNode(tmp_path / "data", files=disk)
    # The last that a node says by itself.
    node.wait_until(lambda node: bool(node.image.controllers))
    yield node
    disk.may_sync.set()
    node.stop()


def create(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def created(client: WireClient) -> int:
    _, response = client.receive()
    (row,) = response.topics
    return int(row.error_code)


def in_flight(node: RunningNode, count: int) -> None:
    node.wait_until(
        lambda node: len(node.metadata._appended) + len(node.metadata._waiting) == count
    )


def test_the_loop_serves_others_while_the_disk_syncs(node: RunningNode, disk: MetadataDisk) -> None:
    admin, other = node.client(), node.client()
    disk.hold()
    admin.send(create("orders"), CREATE_TOPICS_VERSION)
    assert disk.is_syncing.wait(10)
    started = time.monotonic()
    for _ in range(10):
        assert other.call(MetadataRequest(topics=[]), 12).brokers
    assert time.monotonic() - started < 5
    assert "orders" not in node.call(lambda: node.node.image.topics_by_name)
    disk.release()
    assert created(admin) == 0
    # The partitions have followed when the answer comes.
    assert node.call(lambda: node.node.partitions.get("orders", 1)) is not None


def test_requests_in_flight_share_a_sync(node: RunningNode, disk: MetadataDisk) -> None:
    clients = [node.client() for _ in range(5)]
    disk.hold()
    clients[0].send(create("topic-0"), CREATE_TOPICS_VERSION)
    assert disk.is_syncing.wait(10)
    for number, client in enumerate(clients[1:], 1):
        client.send(create(f"topic-{number}"), CREATE_TOPICS_VERSION)
    in_flight(node, 5)
    before = disk.syncs
    disk.release()
    assert [created(client) for client in clients] == [0] * 5
    assert disk.syncs == before + 2


def test_a_topic_that_is_being_made_is_answered_when_it_is_there(
    node: RunningNode, disk: MetadataDisk
) -> None:
    first, second = node.client(), node.client()
    disk.hold()
    first.send(create("orders"), CREATE_TOPICS_VERSION)
    assert disk.is_syncing.wait(10)
    second.send(create("orders"), CREATE_TOPICS_VERSION)
    time.sleep(0.05)
    disk.release()
    assert (created(first), created(second)) == (0, ErrorCode.TOPIC_ALREADY_EXISTS)


def test_a_failed_sync_is_answered_and_leaves_nothing_behind(
    node: RunningNode, disk: MetadataDisk
) -> None:
    node.create_topic("orders")
    clients = [node.client() for _ in range(3)]
    image = node.call(lambda: node.node.image)
    disk.hold()
    for number, client in enumerate(clients):
        # The last two say that the topic exists, of which the first is to make.
        client.send(create("payments" if number else "refunds"), CREATE_TOPICS_VERSION)
    assert disk.is_syncing.wait(10)
    time.sleep(0.05)
    disk.release(fails=True)
    assert {created(client) for client in clients} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert node.call(lambda: node.node.metadata.latest) is image
    assert node.call(lambda: node.node.image) is image
    # It serves on, and knows that it cannot decide any more.
    topics = [MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="new")]
    known, unknown = clients[0].call(MetadataRequest(topics=topics), 12).topics
    assert (known.error_code, len(known.partitions)) == (0, 1)
    assert unknown.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_producer_ids_that_are_not_committed_are_given_to_nobody(
    node: RunningNode, disk: MetadataDisk
) -> None:
    client, other = node.client(), node.client()
    disk.hold()
    client.send(InitProducerIdRequest(), 4)
    assert disk.is_syncing.wait(10)
    disk.release(fails=True)
    _, response = client.receive()
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    # And the next who asks is told as well, and not left waiting.
    assert other.call(InitProducerIdRequest(), 4).error_code == response.error_code


def find_coordinator(node: RunningNode) -> tuple[WireClient, FindCoordinatorRequest]:
    return node.client(), FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])


def test_all_who_need_an_internal_topic_wait_for_it(node: RunningNode, disk: MetadataDisk) -> None:
    disk.hold()
    asking = [find_coordinator(node) for _ in range(3)]
    for client, request in asking:
        client.send(request, 4)
    assert disk.is_syncing.wait(10)
    time.sleep(0.05)
    disk.release()
    for client, _ in asking:
        (row,) = client.receive()[1].coordinators
        assert (row.error_code, row.node_id) == (0, 1)


def test_an_internal_topic_that_cannot_be_made_is_answered(
    node: RunningNode, disk: MetadataDisk
) -> None:
    disk.hold()
    client, request = find_coordinator(node)
    client.send(request, 4)
    assert disk.is_syncing.wait(10)
    disk.release(fails=True)
    (row,) = client.receive()[1].coordinators
    assert row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert CONSUMER_OFFSETS_TOPIC not in node.call(lambda: node.node.metadata.latest.topics_by_name)


def test_log_levels_are_changed_though_the_controller_refuses_the_rest(
    node: RunningNode, disk: MetadataDisk
) -> None:
    node.create_topic("orders")
    level = AlterConfigsResource(
        resource_type=BROKER_LOGGER,
        resource_name="1",
        configs=[AlterableConfig(name="root", config_operation=0, value="FATAL")],
    )
    setting = AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="orders",
        configs=[AlterableConfig(name="retention.ms", config_operation=0, value="5")],
    )
    disk.release(fails=True)
    client = node.client()
    request = IncrementalAlterConfigsRequest(resources=[setting, level])
    rows = {row.resource_name: row.error_code for row in client.call(request, 1).responses}
    assert rows == {"1": 0, "orders": ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_node_that_stops_answers_what_is_in_flight(tmp_path: Path, disk: MetadataDisk) -> None:
    node = RunningNode(tmp_path / "data", files=disk)
    clients = [node.client() for _ in range(3)]
    disk.hold()
    for number, client in enumerate(clients):
        client.send(create(f"topic-{number}"), CREATE_TOPICS_VERSION)
    in_flight(node, 3)
    node.node.request_stop()
    time.sleep(0.05)
    disk.release()
    assert [created(client) for client in clients] == [0] * 3
    node.stop()
    again = RunningNode(tmp_path / "data")
    assert set(again.call(lambda: again.node.image.topics_by_name)) == {
        "topic-0",
        "topic-1",
        "topic-2",
    }
    again.stop()


def test_a_client_that_goes_away_leaves_its_change(node: RunningNode, disk: MetadataDisk) -> None:
    client = node.client()
    disk.hold()
    client.send(create("orders"), CREATE_TOPICS_VERSION)
    assert disk.is_syncing.wait(10)
    client.close()
    time.sleep(0.05)
    disk.release()
    node.wait_until(lambda node: node.partitions.get("orders", 1) is not None)


def test_a_listener_that_raises_strands_no_request(node: RunningNode) -> None:
    def raising(old: MetadataImage, new: MetadataImage, delta: MetadataDelta) -> None:
        raise RuntimeError("a bug")

    node.call(lambda: node.node.metadata.listeners.insert(0, raising))
    client = node.client()
    for name in ("orders", "payments"):
        client.send(create(name), CREATE_TOPICS_VERSION)
        assert created(client) == 0
    assert node.call(lambda: node.node.partitions.get("payments", 0)) is not None


def test_a_bug_in_a_decision_is_answered(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("tidelog.server.handlers.topics.create_topics.create_topics", bug)
    client = node.client()
    client.send(create("orders"), CREATE_TOPICS_VERSION)
    assert created(client) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_loop_serves_while_a_snapshot_waits_for_the_disk(
    node: RunningNode, disk: MetadataDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = threading.Event()
    rename = disk.rename

    def held(source: str | Path, target: str | Path, /) -> None:
        if str(target).endswith(".checkpoint"):
            assert written.wait(30)
        rename(source, target)

    monkeypatch.setattr(disk, "rename", held, raising=False)
    snapshot = node.call(node.node.metadata.snapshot)
    try:
        node.create_topic("orders")
        assert not snapshot.is_done
    finally:
        written.set()
    node.wait_until(lambda _: snapshot.is_done)
    assert snapshot.error is None
