"""DescribeQuorum: who leads, who votes, who observes, and how far each of them is."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.protocol.apis.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.raft.leader_state import NOT_YET, Leader, ReplicaProgress
from tidelog.raft.messages import PARTITION, TOPIC
from tidelog.raft.quorum import Quorum


def describe(quorum: Quorum, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Only the leader knows."""
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    _row(quorum, topic.topic_name, each.partition_index)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        nodes=[
            Node(
                node_id=node.key.id,
                listeners=[
                    Listener(name=each.name, host=each.host, port=each.port)
                    for each in node.endpoints
                ],
            )
            for node in quorum.voters
        ],
    )


def _row(quorum: Quorum, topic: str, index: int) -> PartitionData:
    if (topic, index) != (TOPIC, PARTITION):
        return _error_row(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    leader = quorum.state
    if not isinstance(leader, Leader):
        return _error_row(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leader.forget_silent_observers(quorum.now_ms)
    return PartitionData(
        partition_index=index,
        leader_id=leader.leader_id,
        leader_epoch=leader.epoch,
        high_watermark=-1 if leader.high_watermark is None else leader.high_watermark,
        current_voters=_states(quorum, leader, leader.voters.values()),
        observers=_states(quorum, leader, leader.observers.values()),
    )


def _error_row(index: int, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index, error_code=error, leader_id=-1, leader_epoch=-1, high_watermark=-1
    )


def _states(
    quorum: Quorum, leader: Leader, replicas: Iterable[ReplicaProgress]
) -> list[ReplicaState]:
    # The replica's clock is any; clients are told wall time.
    wall_ms = quorum.wall_ms() - quorum.now_ms
    states = []
    for each in replicas:
        is_leader = each.key == leader.key
        fetch_ms = quorum.now_ms if is_leader else each.last_fetch_ms
        caught_up_ms = quorum.now_ms if is_leader else each.last_caught_up_ms
        states.append(
            ReplicaState(
                replica_id=each.key.id,
                replica_directory_id=each.key.directory_id,
                log_end_offset=quorum.log.end_offset if is_leader else each.end_offset,
                last_fetch_timestamp=-1 if fetch_ms == NOT_YET else wall_ms + fetch_ms,
                last_caught_up_timestamp=-1 if caught_up_ms == NOT_YET else wall_ms + caught_up_ms,
            )
        )
    return states
