"""What a leader's throttle keeps from followers that are not in sync (KIP-73), on the wire."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.server.batches import fetch_request, produce, rows, values
from tests.server.handlers.settings.test_alter_configs import BROKER, DELETE, SET, TOPIC, change
from tests.server.running_node import RunningNode
from tidelog.cluster.replication.partition import Partition
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest
from tidelog.protocol.apis.fetch import FetchRequest
from tidelog.testing.wire import WireClient

VERSION = 12  # by topic name, with epochs
FOLLOWER = 2
LEADER_EPOCH = 5
RATE = "leader.replication.throttled.rate"
REPLICAS = "leader.replication.throttled.replicas"
NEVER_MS = 20_000


@pytest.fixture
def node(served: RunningNode) -> RunningNode:
    """Two topics with a record each, and node 2 as a replica that is not in sync."""
    for topic in ("slow", "free"):
        served.create_topic(topic)
        with served.client() as client:
            produce(client, topic, b"a")
        set_isr(served, topic, (1,), 5)
    return served


def partition_of(node: RunningNode, topic: str) -> Partition:
    found = node.call(lambda: node.node.partitions.get(topic, 0))
    assert found is not None
    return found


def set_isr(node: RunningNode, topic: str, isr: tuple[int, ...], partition_epoch: int) -> None:
    partition = partition_of(node, topic)
    image = (
        node.node.image.topics_by_name[topic]
        .partitions[0]
        ._replace(
            replicas=(1, FOLLOWER),
            isr=isr,
            leader_epoch=LEADER_EPOCH,
            partition_epoch=partition_epoch,
        )
    )
    node.call(lambda: partition.lead(image, node.node.now_ms()))


def throttle(node: RunningNode, rate: int, topic: str = "slow") -> None:
    """From now on, with the limit exceeded for the longest time that counts."""
    with node.client() as client:
        assert change(client, BROKER, "1", (RATE, SET, f"{rate}")) == 0
        assert change(client, TOPIC, topic, (REPLICAS, SET, "*")) == 0
    node.wait_until(lambda each: each.throttles.leader.is_active)
    node.call(lambda: node.node.throttles.leader.bytes.record(100 * rate))


def fetch(offsets: dict[str, int], **fields: Any) -> FetchRequest:
    """A follower's."""
    request = FetchRequest(
        replica_id=FOLLOWER, min_bytes=1, max_bytes=10_000_000, **{"max_wait_ms": 0, **fields}
    )
    for topic, offset in offsets.items():
        wanted = fetch_request(topic, {0: offset}).topics[0]
        wanted.partitions[0].current_leader_epoch = LEADER_EPOCH
        request.topics.append(wanted)
    return request


def found(response: Any) -> dict[str, list[bytes]]:
    return {topic.topic: values(topic.partitions[0]) for topic in response.responses}


def answered_within(client: WireClient, seconds: float) -> Any:
    begun = time.monotonic()
    response = client.receive()[1]
    assert time.monotonic() - begun < seconds
    return response


class Session:
    """A follower's fetch session."""

    def __init__(self, node: RunningNode) -> None:
        self.client = node.client()
        self.id = self.epoch = 0

    def send(self, offsets: dict[str, int], **fields: Any) -> None:
        request = fetch(offsets, **fields)
        request.session_id, request.session_epoch = self.id, self.epoch
        self.client.send(request, VERSION)
        self.epoch += 1

    def receive(self, *, within_s: float = 10.0) -> Any:
        response = answered_within(self.client, within_s)
        assert response.error_code == 0
        self.id = response.session_id
        return response

    def call(self, offsets: dict[str, int], **fields: Any) -> Any:
        self.send(offsets, **fields)
        return self.receive()


def waits(node: RunningNode) -> None:
    node.wait_until(lambda each: each.metrics.delayed_fetches == 1)


def test_a_throttled_follower_gets_the_other_partitions_only(node: RunningNode) -> None:
    session = Session(node)
    throttle(node, 1_000)
    response = session.call({"slow": 0, "free": 0})
    assert found(response) == {"slow": [], "free": [b"a"]}
    (row,) = (topic.partitions[0] for topic in response.responses if topic.topic == "slow")
    assert (row.error_code, row.high_watermark) == (0, 1)


def test_a_consumer_is_not_throttled(node: RunningNode) -> None:
    throttle(node, 1_000)
    with node.client() as client:
        (row,) = rows(client.call(fetch_request("slow", {0: 0}), VERSION)).values()
        assert values(row) == [b"a"]


def test_a_follower_in_sync_is_not_throttled_and_what_it_gets_counts(node: RunningNode) -> None:
    set_isr(node, "slow", (1, FOLLOWER), 6)
    throttle(node, 10)
    node.call(lambda: node.node.throttles.leader.bytes.set_limit(2_000))
    session = Session(node)
    assert not node.call(lambda: node.node.throttles.leader.bytes.is_exceeded)
    for _ in range(40):
        assert found(session.call({"slow": 0})) == {"slow": [b"a"]}
    assert node.call(lambda: node.node.throttles.leader.bytes.is_exceeded)
    assert found(session.call({"slow": 0})) == {"slow": [b"a"]}


def test_a_follower_that_is_held_back_waits_and_is_answered_when_there_is_room(
    node: RunningNode,
) -> None:
    session = Session(node)
    throttle(node, 1_000)
    # The limit says two seconds more.
    node.call(lambda: node.node.throttles.leader.bytes.set_limit(50_000))
    begun = time.monotonic()
    session.send({"slow": 0}, max_wait_ms=NEVER_MS)
    assert found(session.receive()) == {"slow": [b"a"]}
    assert time.monotonic() - begun > 0.5


@pytest.mark.parametrize("has_session", [True, False])
def test_appends_to_what_is_held_back_wake_nobody(node: RunningNode, has_session: bool) -> None:
    session = Session(node)
    throttle(node, 1)
    if has_session:
        # It has heard of the partition before: the first time tells where the log starts.
        session.call({"slow": 0})
        session.send({}, max_wait_ms=NEVER_MS)
    else:
        session.epoch = -1
        session.send({"slow": 0}, max_wait_ms=NEVER_MS)
    waits(node)
    answered = node.node.metrics.fetch_requests
    with node.client() as client:
        for _ in range(50):
            produce(client, "slow", b"more")
    assert node.node.metrics.fetch_requests == answered
    if has_session:
        with node.client() as client:
            produce(client, "free", b"b")
        assert node.node.metrics.fetch_requests == answered, "it has not asked for that one"
    waits(node)


def test_others_of_the_session_go_on_while_one_is_held_back(node: RunningNode) -> None:
    session = Session(node)
    throttle(node, 1)
    session.call({"slow": 0, "free": 1})
    with node.client() as client:
        for number in range(5):
            session.send({}, max_wait_ms=NEVER_MS)
            waits(node)
            produce(client, "slow", b"not this")
            produce(client, "free", b"%d" % number)
            assert found(session.receive()) == {"free": [b"%d" % number]}
            session.call({"free": number + 2})


@pytest.mark.parametrize(
    "lift",
    [
        (BROKER, "1", (RATE, DELETE, None)),
        (BROKER, "1", (RATE, SET, "1000000000")),
        (TOPIC, "slow", (REPLICAS, DELETE, None)),
        (TOPIC, "slow", (REPLICAS, SET, "0:2")),
    ],
)
def test_a_throttle_that_is_lifted_answers_at_once(
    node: RunningNode, lift: tuple[int, str, tuple[str, int, str | None]]
) -> None:
    session = Session(node)
    throttle(node, 1)
    session.call({"slow": 0})
    session.send({}, max_wait_ms=NEVER_MS)
    waits(node)
    with node.client() as client:
        assert change(client, *lift) == 0
    assert found(session.receive(within_s=5)) == {"slow": [b"a"]}


def test_a_follower_that_is_in_sync_by_now_is_answered_at_once(node: RunningNode) -> None:
    session = Session(node)
    throttle(node, 1)
    session.call({"slow": 0})
    session.send({}, max_wait_ms=NEVER_MS)
    waits(node)
    set_isr(node, "slow", (1, FOLLOWER), 6)
    assert found(session.receive(within_s=5)) == {"slow": [b"a"]}


def test_a_follower_that_is_held_back_hears_of_another_start_of_the_log(node: RunningNode) -> None:
    session = Session(node)
    throttle(node, 1)
    session.call({"slow": 0})
    session.send({}, max_wait_ms=NEVER_MS)
    waits(node)
    partition = partition_of(node, "slow")
    node.call(lambda: partition.delete_records(1))
    (row,) = rows(session.receive(within_s=5)).values()
    assert row.log_start_offset == 1 or row.error_code


def test_a_cluster_default_holds_and_a_broker_s_own_value_wins(node: RunningNode) -> None:
    limits = node.node.throttles.leader.bytes
    with node.client() as client:
        assert change(client, BROKER, "", (RATE, SET, "77")) == 0
        node.wait_until(lambda each: each.config.leader_replication_throttled_rate == 77)
        assert change(client, BROKER, "1", (RATE, SET, "5")) == 0
        node.wait_until(lambda each: limits._limit == 5)
        assert change(client, BROKER, "1", (RATE, DELETE, None)) == 0
        node.wait_until(lambda each: limits._limit == 77)


def test_throttled_replicas_hold_after_a_restart_and_go_with_their_topic(
    node: RunningNode,
) -> None:
    throttle(node, 1, "free")
    node.stop()
    again = RunningNode(node.data)
    try:
        assert again.node.throttles.leader.is_active
        assert again.node.throttles.leader.bytes._limit == 1
        with again.client() as client:
            client.call(DeleteTopicsRequest(topic_names=["free"], timeout_ms=10_000), 3)
        again.wait_until(lambda each: not each.throttles.leader.is_active)
    finally:
        again.stop()
