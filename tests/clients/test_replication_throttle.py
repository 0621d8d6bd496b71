"""A replica moves between real nodes under a throttle while clients write, as operators do it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Message, Producer, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tidelog.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.testing import Cluster
from tidelog.testing.wire import WireClient

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(180)]

WAIT_S = 30.0
RATE = 1_000_000
RECORD_BYTES = 100_000
RECORDS = 80
SIZE_BYTES = RECORDS * RECORD_BYTES
SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
SIDES = ("leader", "follower")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(admin: AdminClient, topic: str, replicas: list[int]) -> None:
    config = {"min.insync.replicas": "1", "durability": "page-cache"}
    new = NewTopic(topic, num_partitions=1, replica_assignment=[replicas], config=config)
    admin.create_topics([new])[topic].result(WAIT_S)


def alter(
    admin: AdminClient, kind: ResourceType, name: str, settings: dict[str, str | None]
) -> None:
    resource = ConfigResource(
        kind,
        name,
        incremental_configs=[
            ConfigEntry(key, value, incremental_operation=DELETE if value is None else SET)
            for key, value in settings.items()
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def throttle(admin: AdminClient, topic: str) -> None:
    """As kafka-reassign-partitions does it for a move of partition 0 from node 1 to node 2."""
    replicas: dict[str, str | None] = {
        f"{side}.replication.throttled.replicas": f"0:{node}"
        for side, node in zip(SIDES, (1, 2), strict=True)
    }
    alter(admin, ResourceType.TOPIC, topic, replicas)
    for node in ("1", "2"):
        rates: dict[str, str | None] = {
            f"{side}.replication.throttled.rate": str(RATE) for side in SIDES
        }
        alter(admin, ResourceType.BROKER, node, rates)


def lift(admin: AdminClient) -> None:
    for node in ("1", "2"):
        rates: dict[str, str | None] = {
            f"{side}.replication.throttled.rate": None for side in SIDES
        }
        alter(admin, ResourceType.BROKER, node, rates)


def fill(cluster: Cluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for _ in range(RECORDS):
        producer.produce(topic, bytes(RECORD_BYTES), partition=0)
    assert producer.flush(WAIT_S) == 0


def move(cluster: Cluster, topic: str) -> None:
    """From node 1 to node 2."""
    row = ReassignablePartition(partition_index=0, replicas=[2])
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[row])]
    )
    host, port = cluster.brokers[1].bootstrap_servers.split(":")
    with WireClient(host, int(port)) as client:
        response = client.call(request, 0)
    assert response.error_code == response.responses[0].partitions[0].error_code == 0


def replicas_of(admin: AdminClient, topic: str) -> tuple[list[int], list[int]]:
    """All of them, and those in sync."""
    described = admin.describe_topics(TopicCollection([topic]))
    (partition,) = described[topic].result(WAIT_S).partitions
    return [node.id for node in partition.replicas], [node.id for node in partition.isr]


def await_move(admin: AdminClient, topic: str, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while replicas_of(admin, topic) != ([2], [2]):
        assert time.monotonic() < deadline, replicas_of(admin, topic)
        time.sleep(0.05)


class Writer:
    """Writes one record after the other with acks=all, and notes how long each took."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self._topic = topic
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.times_s: list[float] = []
        self.failures: list[object] = []
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            begun = time.monotonic()
            self._producer.produce(self._topic, bytes(1000), on_delivery=self._delivered)
            self._producer.flush(WAIT_S)
            self.times_s.append(time.monotonic() - begun)

    def _delivered(self, error: object, _message: Message) -> None:
        if error is not None:
            self.failures.append(error)

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join()


@contextmanager
def writing(cluster: Cluster, topic: str) -> Iterator[Writer]:
    writer = Writer(cluster.bootstrap, topic)
    try:
        yield writer
    finally:
        writer.stop()


def test_a_move_takes_as_long_as_its_throttle_says_and_others_are_served_meanwhile(
    cluster: Cluster, admin: AdminClient
) -> None:
    create(admin, "moved", [1])
    create(admin, "busy", [1, 2])
    fill(cluster, "moved")
    throttle(admin, "moved")
    with writing(cluster, "busy") as writer:
        begun = time.monotonic()
        move(cluster, "moved")
        await_move(admin, "moved", WAIT_S)
        elapsed_s = time.monotonic() - begun
    lift(admin)
    assert 0.7 < elapsed_s / (SIZE_BYTES / RATE) < 1.6
    assert writer.failures == []
    assert len(writer.times_s) > 20 * elapsed_s
    assert max(writer.times_s) < 2


def test_a_throttle_that_is_lifted_while_a_replica_moves_lets_it_end_at_once(
    cluster: Cluster, admin: AdminClient
) -> None:
    create(admin, "hurried", [1])
    fill(cluster, "hurried")
    throttle(admin, "hurried")
    move(cluster, "hurried")
    time.sleep(2)
    assert replicas_of(admin, "hurried")[1] == [1]
    lift(admin)
    await_move(admin, "hurried", 4)
