"""The quorum, its controller and the brokers' lives, on three real nodes."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from tests.server.replication.running_cluster import RunningCluster, eventually
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.describe_quorum import (
    DescribeQuorumRequest,
    PartitionRequest,
    TopicRequest,
)
from tidelog.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.wire import ConnectionEnded

SESSION_S = 9.0
"""Kafka's default, and the cluster's: what is quicker was not noticed by a session's end."""


def create(cluster: RunningCluster, node_id: int, *names: str, **more: int) -> list[ErrorCode]:
    """Ask a node for topics; the codes of its answer."""
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=more.get("replicas", 3))
        for name in names
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=10_000)
    with cluster[node_id].client() as client:
        return [ErrorCode(row.error_code) for row in client.call(request, 7).topics]


def controller_of(cluster: RunningCluster) -> int:
    """The node whose controller is active, once there is one."""

    def active() -> list[int]:
        return [each for each, node in cluster.nodes.items() if node.node.metadata.is_active]

    eventually(lambda: len(active()) == 1, "no controller is active")
    return active()[0]


def images_are_equal(cluster: RunningCluster) -> bool:
    images = [each.call(lambda n=each.node: n.image) for each in cluster.nodes.values()]  # type: ignore[misc]
    return all(
        (each.topics_by_name, each.brokers, each.configs, each.features)
        == (images[0].topics_by_name, images[0].brokers, images[0].configs, images[0].features)
        for each in images
    )


def test_every_node_takes_requests_for_the_controller(cluster: RunningCluster) -> None:
    for node_id in (1, 2, 3):
        assert create(cluster, node_id, f"of-{node_id}") == [ErrorCode.NONE]
        # What the controller refuses reaches the client as it is.
        assert create(cluster, node_id, f"of-{node_id}", "bad name") == [
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert create(cluster, node_id, "too-wide", replicas=4) == [
            ErrorCode.INVALID_REPLICATION_FACTOR
        ]
    eventually(lambda: images_are_equal(cluster), "the nodes do not agree")
    assert set(cluster[2].node.image.topics_by_name) == {"of-1", "of-2", "of-3"}


def test_every_node_describes_the_quorum_as_its_leader_does(cluster: RunningCluster) -> None:
    leader = controller_of(cluster)
    request = DescribeQuorumRequest(
        topics=[
            TopicRequest(
                topic_name="__cluster_metadata", partitions=[PartitionRequest(partition_index=0)]
            )
        ]
    )
    for node_id in (1, 2, 3):
        with cluster[node_id].client() as client:
            response = client.call(request, 2)
        (row,) = response.topics[0].partitions
        assert (row.error_code, row.leader_id) == (0, leader)
        assert {voter.replica_id for voter in row.current_voters} == {1, 2, 3}
        assert {node.node_id for node in response.nodes} == {1, 2, 3}


def test_controllers_register_in_each_of_their_lives(cluster: RunningCluster) -> None:
    def incarnations() -> dict[int, bytes]:
        controllers = cluster[1].node.image.controllers
        return {node_id: controllers[node_id].incarnation_id for node_id in controllers}

    eventually(lambda: set(incarnations()) == {1, 2, 3}, "a controller has not registered")
    before = incarnations()
    for node_id, node in cluster.nodes.items():
        registered = cluster[1].node.image.controllers[node_id]
        (endpoint,) = registered.endpoints
        assert (endpoint.host, endpoint.port) == node.node.addresses[0]
        assert ("metadata.version", 7, 30) in registered.features
    cluster.kill(2)
    cluster.restart(2)
    eventually(lambda: incarnations()[2] != before[2], "it has not registered in its second life")
    assert {**before, 2: b""} == {**incarnations(), 2: b""}
    # All who vote have told their levels, so one can be changed.
    change = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    with cluster[3].client() as client:
        response = client.call(UpdateFeaturesRequest(feature_updates=[change], timeout_ms=9000), 2)
    assert (response.error_code, response.error_message) == (0, None)


@pytest.mark.parametrize("victim_is_controller", [False, True])
def test_a_node_that_dies_is_fenced_at_once_and_comes_back_at_once(
    cluster: RunningCluster, victim_is_controller: bool
) -> None:
    controller = controller_of(cluster)
    victim = controller if victim_is_controller else controller % 3 + 1
    create(cluster, victim, "orders")
    begun = time.monotonic()
    cluster.kill(victim)
    for other in cluster.nodes.values():
        other.wait_until(lambda node: node.image.brokers[victim].fenced)
    assert time.monotonic() - begun < SESSION_S / 2
    assert controller_of(cluster) != victim
    alive = next(iter(cluster.nodes))
    assert create(cluster, alive, "meanwhile", replicas=2) == [ErrorCode.NONE]
    begun = time.monotonic()
    cluster.restart(victim)
    assert time.monotonic() - begun < SESSION_S / 2, "nobody waited for the session of its past"
    eventually(lambda: images_are_equal(cluster), "the nodes do not agree")


SELDOM = {"broker.heartbeat.interval.ms": "30000", "broker.session.timeout.ms": "60000"}


@pytest.mark.parametrize("cluster", [SELDOM], indirect=True)
def test_a_node_that_stops_does_not_wait_for_the_next_heartbeats_of_others(
    cluster: RunningCluster,
) -> None:
    cluster.create_topic("orders", [[2, 1, 3]])
    running = cluster.nodes.pop(2)
    begun = time.monotonic()
    running.node.request_stop()
    running.join()
    assert cluster.image(1, "orders", 0).leader == 1
    assert time.monotonic() - begun < 5


def test_a_node_that_stops_hands_over_what_it_leads(cluster: RunningCluster) -> None:
    cluster.create_topic("orders", [[2, 1, 3], [3, 2, 1], [1, 3, 2]])
    running = cluster.nodes.pop(2)
    epoch = cluster.image(1, "orders", 0).leader_epoch
    running.node.request_stop()
    running.join()
    image = cluster.image(1, "orders", 0)
    assert (image.leader, image.leader_epoch) == (1, epoch + 1)
    assert 2 not in image.isr
    assert cluster.image(1, "orders", 1).leader == 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_node_whose_last_directory_fails_ends_and_others_lead(cluster: RunningCluster) -> None:
    cluster.create_topic("orders", [[2, 1, 3]])
    running = cluster.nodes.pop(2)

    def fail_disk() -> None:
        log = running.node.store.logs[TopicPartition("orders", 0)]
        assert log.on_storage_error is not None
        log.on_storage_error(log, OSError(errno.EIO, "Input/output error"))

    running.call(fail_disk)
    assert cluster.wait_for_leader("orders", {1, 3}) == 1
    running.join()


def test_a_node_that_was_away_for_long_gets_a_snapshot(tmp_path: Path) -> None:
    cluster = RunningCluster(
        tmp_path, settings={"metadata.log.max.record.bytes.between.snapshots": "2000"}
    )
    try:
        controller = controller_of(cluster)
        victim = controller % 3 + 1
        cluster.kill(victim)
        alive = next(iter(cluster.nodes))
        for number in range(60):
            assert create(cluster, alive, f"topic-{number}", replicas=1) == [ErrorCode.NONE]
        leader = cluster[controller_of(cluster)]
        leader.wait_until(lambda node: node.metadata.log.log_start_offset > 20)
        cluster.restart(victim)
        eventually(lambda: images_are_equal(cluster), "the nodes do not agree")
        returned = cluster[victim].node
        assert returned.metadata.log.log_start_offset > 20
        assert len(returned.image.topics_by_name) == 60
    finally:
        cluster.close()


def test_clients_of_a_node_that_waits_for_the_quorum_are_not_served(tmp_path: Path) -> None:
    cluster = RunningCluster(tmp_path)
    try:
        others = [each for each in (1, 2, 3) if each != 1]
        for node_id in others:
            cluster.kill(node_id)
        cluster.kill(1)
        cluster._start(1)
        lonely = cluster[1]
        with pytest.raises(ConnectionEnded):
            create(cluster, 1, "orders")
        assert not lonely.node.is_ready
        for node_id in others:
            cluster._start(node_id)
        cluster.wait_until_ready()
        assert create(cluster, 1, "orders") == [ErrorCode.NONE]
    finally:
        cluster.close()


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_node_that_all_others_have_left_does_not_wait_for_them(
    cluster: RunningCluster, is_controller: bool
) -> None:
    controller = controller_of(cluster)
    create(cluster, controller, "orders")
    last = cluster.nodes.pop(controller if is_controller else controller % 3 + 1)
    for other in list(cluster.nodes):
        cluster.kill(other)
    begun = time.monotonic()
    last.node.request_stop()
    last.join()
    # A leader would resign for lack of a majority after three seconds only, and a follower holds
    # elections in vain for ten.
    assert time.monotonic() - begun < 3
