"""DescribeQuorum: leader, voters and observers of the metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.topic_names import CLUSTER_METADATA_TOPIC
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    PartitionData,
    ReplicaState,
    TopicData,
)
from tidelog.protocol.apis.describe_quorum import Node as QuorumNode
from tidelog.protocol.control_records import Voter
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DESCRIBE_QUORUM
VERSIONS = (0, 2)
REQUEST = DescribeQuorumRequest
NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER, cluster),)

_METADATA_PARTITION = 0


def handle(node: Node, request: Request, body: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    _row(node, topic.topic_name, each.partition_index) for each in topic.partitions
                ],
            )
            for topic in body.topics
        ],
        nodes=[
            QuorumNode(
                node_id=voter.voter_id,
                listeners=[
                    Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                    for endpoint in voter.endpoints
                ],
            )
            for voter in node.metadata.voters
        ],
    )


def error_response(body: DescribeQuorumRequest, error: ApiError) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error.code, error_message=error.message)


def _row(node: Node, topic: str, partition: int) -> PartitionData:
    if topic != CLUSTER_METADATA_TOPIC or partition != _METADATA_PARTITION:
        return PartitionData(
            partition_index=partition,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"{topic}-{partition} is not the metadata log",
            leader_id=-1,
            leader_epoch=-1,
            high_watermark=-1,
        )
    metadata = node.metadata
    return PartitionData(
        partition_index=partition,
        leader_id=metadata.leader_id,
        leader_epoch=metadata.leader_epoch,
        high_watermark=metadata.high_watermark,
        current_voters=[_state(node, voter) for voter in metadata.voters],
    )


def _state(node: Node, voter: Voter) -> ReplicaState:
    state = ReplicaState(
        replica_id=voter.voter_id,
        replica_directory_id=voter.voter_directory_id,
        log_end_offset=-1,
    )
    if voter.voter_id == node.metadata.leader_id:
        # The leader is caught up with itself; of another voter nothing has been heard.
        state.log_end_offset = node.metadata.log.log_end_offset
        state.last_fetch_timestamp = state.last_caught_up_timestamp = node.now_ms()
    return state
