"""The health of a cluster by what is missing."""

from dataclasses import replace

import pytest

from tidelog.client.cluster.cluster_state import (
    BrokerState,
    ClusterMembers,
    ClusterState,
    Health,
    Quorum,
    QuorumReplica,
    ReplicatedPartition,
)
from tidelog.protocol.topic_partition import TopicPartition

VOTERS = tuple(QuorumReplica(node, True, 100, 0, 0) for node in (1, 2, 3))
MEMBERS = ClusterMembers(
    "a-cluster",
    1,
    tuple(BrokerState(node, f"node-{node}", 9092, None, is_fenced=False) for node in (1, 2, 3)),
    Quorum(1, 5, 100, VOTERS),
)
WHOLE = ReplicatedPartition(TopicPartition("t", 0), 1, (1, 2, 3), (1, 2, 3), 2)


def members(
    *, leader_id: int | None = 1, fenced: int = 0, voters: tuple[QuorumReplica, ...] = VOTERS
) -> ClusterMembers:
    return replace(
        MEMBERS,
        brokers=tuple(replace(each, is_fenced=each.node_id == fenced) for each in MEMBERS.brokers),
        quorum=replace(MEMBERS.quorum, leader_id=leader_id, replicas=voters),
    )


@pytest.mark.parametrize(
    ("state", "health"),
    [
        (ClusterState(members(), (WHOLE,)), Health.HEALTHY),
        (ClusterState(members(), ()), Health.HEALTHY),
        (ClusterState(members(), (replace(WHOLE, isr=(1, 2)),)), Health.DEGRADED),
        (ClusterState(members(fenced=3), (WHOLE,)), Health.DEGRADED),
        (
            ClusterState(members(voters=(*VOTERS[:2], replace(VOTERS[2], behind_ms=11_000))), ()),
            Health.DEGRADED,
        ),
        (
            ClusterState(members(voters=(*VOTERS[:2], replace(VOTERS[2], behind_ms=None))), ()),
            Health.DEGRADED,
        ),
        (
            ClusterState(
                members(voters=(*VOTERS, QuorumReplica(4, False, 0, 100, None))), (WHOLE,)
            ),
            Health.HEALTHY,  # an observer that catches up
        ),
        (ClusterState(members(), (replace(WHOLE, isr=(1,)),)), Health.UNAVAILABLE),
        (ClusterState(members(), (replace(WHOLE, leader_id=-1),)), Health.UNAVAILABLE),
        (ClusterState(members(leader_id=None), (WHOLE,)), Health.UNAVAILABLE),
    ],
)
def test_health_is_the_worst_that_is_so(state: ClusterState, health: Health) -> None:
    assert state.health is health


def test_partitions_are_named_by_what_they_lack() -> None:
    short = replace(WHOLE, partition=TopicPartition("t", 1), isr=(1,))
    offline = replace(WHOLE, partition=TopicPartition("t", 2), leader_id=-1)
    state = ClusterState(members(), (WHOLE, short, offline))
    assert state.under_replicated == [TopicPartition("t", 1)]
    assert state.under_min_isr == [TopicPartition("t", 1)]
    assert state.offline == [TopicPartition("t", 2)]
