"""Replication throttles (KIP-73) between real nodes: replicas that catch up are held to a rate, and
nobody else notices."""

from __future__ import annotations

import time

import pytest

from tests.server.batches import produce
from tests.server.handlers.settings.test_alter_configs import BROKER, DELETE, SET, TOPIC, change
from tests.server.replication.running_cluster import RunningCluster, eventually
from tidelog.cluster.replication.replication_throttle import ReplicationThrottle
from tidelog.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.server.node import Node

# Small fetches, so that a low rate is held exactly.
SMALL_FETCHES = {"replica.fetch.max.bytes": "20000", "replica.lag.time.max.ms": "10000"}
BATCH_BYTES = 10_000
BATCHES = 60
LEADER, FOLLOWER = "leader", "follower"
small_fetches = pytest.mark.parametrize("cluster", [SMALL_FETCHES], indirect=True)
either_side = pytest.mark.parametrize("side", [LEADER, FOLLOWER])


def throttle_of(node: Node, side: str) -> ReplicationThrottle:
    return node.throttles.leader if side == LEADER else node.throttles.follower


def throttle(cluster: RunningCluster, side: str, rate: int, replicas: str = "*") -> None:
    """Of the topic `moved`, on all nodes."""
    with cluster[1].client() as client:
        rates = (f"{side}.replication.throttled.rate", SET, f"{rate}")
        assert change(client, BROKER, "", rates) == 0
        chosen = (f"{side}.replication.throttled.replicas", SET, replicas)
        assert change(client, TOPIC, "moved", chosen) == 0
    for node_id, running in cluster.nodes.items():
        named = replicas == "*" or f":{node_id}" in replicas
        running.wait_until(lambda node, named=named: throttle_of(node, side).is_active == named)  # type: ignore[misc]


def lift(cluster: RunningCluster, side: str) -> None:
    with cluster[1].client() as client:
        rate = (f"{side}.replication.throttled.rate", DELETE, None)
        assert change(client, BROKER, "", rate) == 0


def fill(cluster: RunningCluster) -> None:
    """`moved` on node 1, with about 600 KB."""
    cluster.create_topic("moved", [[1]])
    with cluster[1].client() as client:
        for _ in range(BATCHES):
            produce(client, "moved", bytes(BATCH_BYTES))


def add_replica(cluster: RunningCluster, node_id: int = 2) -> None:
    row = ReassignablePartition(partition_index=0, replicas=[1, node_id])
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="moved", partitions=[row])]
    )
    with cluster[1].client() as client:
        response = client.call(request, 0)
    assert response.error_code == 0, response
    assert response.responses[0].partitions[0].error_code == 0


def copied(cluster: RunningCluster, node_id: int = 2) -> int:
    found = cluster.find(node_id, "moved")
    return 0 if found is None else found.log_end_offset


@small_fetches
@either_side
def test_a_new_replica_catches_up_as_fast_as_the_throttle_says(
    cluster: RunningCluster, side: str
) -> None:
    fill(cluster)
    throttle(cluster, side, 200_000)
    fetches = cluster[1].node.metrics.fetch_requests
    begun = time.monotonic()
    add_replica(cluster)
    cluster.wait_for_isr("moved", {1, 2})
    elapsed = time.monotonic() - begun
    assert 2.0 < elapsed < 8.0, "600 KB at 200 KB a second"
    cluster.wait_for_same_logs("moved", (1, 2))
    # Two other nodes wait 100 ms at a time, and one fetch takes up to two batches.
    assert cluster[1].node.metrics.fetch_requests - fetches < BATCHES + 40 * elapsed


@small_fetches
@either_side
def test_a_throttle_that_is_lifted_lets_the_replica_catch_up_at_once(
    cluster: RunningCluster, side: str
) -> None:
    fill(cluster)
    throttle(cluster, side, 1_000)
    add_replica(cluster)
    eventually(lambda: copied(cluster) > 0)
    time.sleep(0.5)
    assert copied(cluster) < BATCHES
    begun = time.monotonic()
    lift(cluster, side)
    cluster.wait_for_isr("moved", {1, 2})
    assert time.monotonic() - begun < 4


@small_fetches
@either_side
def test_other_partitions_and_replicas_in_sync_go_on_meanwhile(
    cluster: RunningCluster, side: str
) -> None:
    """Also those between the same two nodes, and writes to the topic that is throttled."""
    fill(cluster)
    cluster.create_topic("busy", [[1, 2], [2, 1]])
    throttle(cluster, side, 1_000)
    add_replica(cluster)
    eventually(lambda: copied(cluster) > 0)
    times: list[float] = []
    with cluster[1].client() as first, cluster[2].client() as second:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            begun = time.monotonic()
            produce(first, "busy", b"a" * 1000)
            produce(second, "busy", b"a" * 1000, partition=1)
            produce(first, "moved", b"a")
            times.append(time.monotonic() - begun)
    assert copied(cluster) < BATCHES
    assert max(times) < 1
    assert len(times) > 50


@small_fetches
@either_side
def test_replicas_that_are_in_sync_are_not_throttled(cluster: RunningCluster, side: str) -> None:
    cluster.create_topic("moved", [[1, 2, 3]])
    throttle(cluster, side, 1)
    begun = time.monotonic()
    with cluster[1].client() as client:
        for _ in range(BATCHES):
            produce(client, "moved", bytes(BATCH_BYTES))
    assert time.monotonic() - begun < 8
    assert set(cluster.image(1, "moved").isr) == {1, 2, 3}
    moving = cluster[1 if side == LEADER else 2].node
    assert throttle_of(moving, side).bytes.is_exceeded, "what they move counts"


@small_fetches
def test_only_the_replicas_that_are_named_are_throttled(cluster: RunningCluster) -> None:
    fill(cluster)
    throttle(cluster, FOLLOWER, 1_000, replicas="0:1,0:3")
    begun = time.monotonic()
    add_replica(cluster, 2)
    cluster.wait_for_isr("moved", {1, 2})
    assert time.monotonic() - begun < 5
    assert not cluster[2].node.throttles.follower.bytes.is_exceeded
