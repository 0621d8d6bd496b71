"""Requests and responses about the one partition that the quorum keeps, built and taken apart.

Every message names one topic with one partition; a message that names another is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidelog.protocol.apis import (
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    vote,
)
from tidelog.protocol.apis.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from tidelog.protocol.apis.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from tidelog.protocol.apis.fetch import FetchRequest, FetchResponse
from tidelog.protocol.apis.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tidelog.protocol.apis.vote import VoteRequest, VoteResponse
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.record_batch import Buffer
from tidelog.protocol.uuids import METADATA_TOPIC_ID
from tidelog.raft.raft_log import OffsetAndEpoch, SnapshotId
from tidelog.raft.voters import Endpoint, Endpoints, ReplicaKey

TOPIC = "__cluster_metadata"
PARTITION = 0
NO_LEADER = -1


class LeaderView(NamedTuple):
    """Who leads, as a response tells it."""

    leader_id: int  # -1 when it is not known
    epoch: int
    address: Endpoint | None


def only_partition(topics: Any, *, is_fetch: bool = False) -> Any | None:
    """The partition that a message is about; None when it is not (only) that of the metadata."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic = topics[0]
    if is_fetch:
        is_metadata = topic.topic_id == METADATA_TOPIC_ID or topic.topic == TOPIC
    else:
        is_metadata = getattr(topic, "topic_name", None) == TOPIC or (
            getattr(topic, "name", None) == TOPIC
        )
    partition = topic.partitions[0]
    index = getattr(partition, "partition_index", None)
    if index is None:
        index = getattr(partition, "partition", None)
    if index is None:
        index = partition.index
    return partition if is_metadata and index == PARTITION else None


def _nodes(node_class: Any, view: LeaderView) -> list[Any]:
    if view.leader_id < 0 or view.address is None:
        return []
    return [node_class(node_id=view.leader_id, host=view.address.host, port=view.address.port)]


def address_in(response: Any, leader_id: int, listener: str) -> Endpoints:
    """The endpoint that a response names for the leader."""
    for node in response.node_endpoints:
        if node.node_id == leader_id and node.host:
            return (Endpoint(listener, node.host, node.port),)
    return ()


# Vote


def vote_request(
    cluster_id: str, epoch: int, own: ReplicaKey, voter: ReplicaKey, end: OffsetAndEpoch, pre: bool
) -> VoteRequest:
    partition = vote.PartitionRequest(
        partition_index=PARTITION,
        replica_epoch=epoch,
        replica_id=own.id,
        replica_directory_id=own.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
        pre_vote=pre,
    )
    return VoteRequest(
        cluster_id=cluster_id,
        voter_id=voter.id,
        topics=[vote.TopicRequest(topic_name=TOPIC, partitions=[partition])],
    )


def vote_response(error: ErrorCode, view: LeaderView, granted: bool) -> VoteResponse:
    partition = vote.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        leader_id=view.leader_id,
        leader_epoch=view.epoch,
        vote_granted=granted,
    )
    return VoteResponse(
        topics=[vote.TopicData(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=_nodes(vote.NodeEndpoint, view),
    )


# The begin and the end of an epoch


def begin_epoch_request(
    cluster_id: str, epoch: int, leader_id: int, voter: ReplicaKey, endpoints: Endpoints
) -> BeginQuorumEpochRequest:
    partition = begin_quorum_epoch.PartitionRequest(
        partition_index=PARTITION,
        voter_directory_id=voter.directory_id,
        leader_id=leader_id,
        leader_epoch=epoch,
    )
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.id,
        topics=[begin_quorum_epoch.TopicRequest(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[
            begin_quorum_epoch.LeaderEndpoint(name=each.name, host=each.host, port=each.port)
            for each in endpoints
        ],
    )


def begin_epoch_response(error: ErrorCode, view: LeaderView) -> BeginQuorumEpochResponse:
    partition = begin_quorum_epoch.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        leader_id=view.leader_id,
        leader_epoch=view.epoch,
    )
    return BeginQuorumEpochResponse(
        topics=[begin_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=_nodes(begin_quorum_epoch.NodeEndpoint, view),
    )


def end_epoch_request(
    cluster_id: str,
    epoch: int,
    leader_id: int,
    preferred: Iterable[ReplicaKey],
    endpoints: Endpoints,
) -> EndQuorumEpochRequest:
    preferred = list(preferred)
    partition = end_quorum_epoch.PartitionRequest(
        partition_index=PARTITION,
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_successors=[key.id for key in preferred],
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(
                candidate_id=key.id, candidate_directory_id=key.directory_id
            )
            for key in preferred
        ],
    )
    return EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[end_quorum_epoch.TopicRequest(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[
            end_quorum_epoch.LeaderEndpoint(name=each.name, host=each.host, port=each.port)
            for each in endpoints
        ],
    )


def end_epoch_response(error: ErrorCode, view: LeaderView) -> EndQuorumEpochResponse:
    partition = end_quorum_epoch.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        leader_id=view.leader_id,
        leader_epoch=view.epoch,
    )
    return EndQuorumEpochResponse(
        topics=[end_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=_nodes(end_quorum_epoch.NodeEndpoint, view),
    )


# Fetch


def fetch_request(
    cluster_id: str,
    epoch: int,
    own: ReplicaKey,
    end: OffsetAndEpoch,
    high_watermark: int,
    max_bytes: int,
    max_wait_ms: int,
) -> FetchRequest:
    partition = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        partition_max_bytes=max_bytes,
        replica_directory_id=own.directory_id,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_id=own.id,
        replica_state=fetch.ReplicaState(replica_id=own.id),
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        topics=[fetch.FetchTopic(topic=TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetch_response(
    error: ErrorCode,
    view: LeaderView,
    *,
    high_watermark: int = -1,
    log_start_offset: int = -1,
    records: Buffer = b"",
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: SnapshotId | None = None,
) -> FetchResponse:
    partition = fetch.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=view.leader_id, leader_epoch=view.epoch),
        records=records,
    )
    if diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(
            epoch=diverging.epoch, end_offset=diverging.offset
        )
    if snapshot_id is not None:
        partition.snapshot_id = fetch.SnapshotId(
            epoch=snapshot_id.epoch, end_offset=snapshot_id.offset
        )
    return FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic=TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
            )
        ],
        node_endpoints=_nodes(fetch.NodeEndpoint, view),
    )


# FetchSnapshot


def fetch_snapshot_request(
    cluster_id: str,
    epoch: int,
    own: ReplicaKey,
    snapshot_id: SnapshotId,
    position: int,
    max_bytes: int,
) -> FetchSnapshotRequest:
    partition = fetch_snapshot.PartitionRequest(
        partition=PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.SnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        ),
        position=position,
        replica_directory_id=own.directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=own.id,
        max_bytes=max_bytes,
        topics=[fetch_snapshot.TopicRequest(name=TOPIC, partitions=[partition])],
    )


def fetch_snapshot_response(
    error: ErrorCode,
    view: LeaderView,
    *,
    snapshot_id: SnapshotId | None = None,
    size: int = 0,
    position: int = 0,
    chunk: Buffer = b"",
) -> FetchSnapshotResponse:
    partition = fetch_snapshot.PartitionData(
        index=PARTITION,
        error_code=error,
        current_leader=fetch_snapshot.LeaderIdAndEpoch(
            leader_id=view.leader_id, leader_epoch=view.epoch
        ),
        size=size,
        position=position,
        unaligned_records=chunk,
    )
    if snapshot_id is not None:
        partition.snapshot_id = fetch_snapshot.SnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        )
    return FetchSnapshotResponse(
        topics=[fetch_snapshot.TopicData(name=TOPIC, partitions=[partition])],
        node_endpoints=_nodes(fetch_snapshot.NodeEndpoint, view),
    )
