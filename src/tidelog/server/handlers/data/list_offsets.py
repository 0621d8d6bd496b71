"""ListOffsets: the first offset at or after a time, or one of the special places of a log."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, Refusal, topic_names
from tidelog.server.partition_lookup import hosted_partition

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.LIST_OFFSETS
VERSIONS = (1, 11)
REQUEST = ListOffsetsRequest
NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.TOPIC, topic_names, Refusal.ROW),)

_CONSUMER = -1
_DEBUGGER = -2  # looks at any replica
_READ_COMMITTED = 1

# Timestamps below zero stand for places, each known from some version on: the end, the start, the
# record with the largest timestamp, the start of the local log, the end of the tiered log, the
# first offset that is not tiered yet.
_SPECIAL_TIMESTAMPS_FROM_VERSION = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}


def handle(node: Node, request: Request, body: ListOffsetsRequest) -> ListOffsetsResponse:
    times_asked = Counter(
        (topic.name, each.partition_index) for topic in body.topics for each in topic.partitions
    )
    # Brokers and debugging tools look at the log as it is.
    is_follower = body.replica_id != _CONSUMER
    read_committed = not is_follower and body.isolation_level == _READ_COMMITTED
    response = ListOffsetsResponse()
    for topic in body.topics:
        rows = []
        for each in topic.partitions:
            try:
                if times_asked[topic.name, each.partition_index] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST)
                rows.append(
                    _row(node, request.version, topic.name, each, read_committed, body.replica_id)
                )
            except ApiError as error:
                rows.append(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=error.code
                    )
                )
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return response


def error_response(body: ListOffsetsRequest, error: ApiError) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=error.code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _row(
    node: Node,
    version: int,
    topic: str,
    asked: ListOffsetsPartition,
    read_committed: bool,
    replica_id: int,
) -> ListOffsetsPartitionResponse:
    if asked.timestamp < 0:
        known_from = _SPECIAL_TIMESTAMPS_FROM_VERSION.get(asked.timestamp)
        if known_from is None or version < known_from:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    found = hosted_partition(node, topic, asked.partition_index).list_offset(
        asked.timestamp,
        read_committed=read_committed,
        current_leader_epoch=asked.current_leader_epoch,
        is_follower=replica_id != _CONSUMER,
        only_from_leader=replica_id != _DEBUGGER,
    )
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )
