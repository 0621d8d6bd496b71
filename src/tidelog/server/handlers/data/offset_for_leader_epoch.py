"""OffsetForLeaderEpoch: where an epoch ended, so that a reader finds where its log diverges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, Refusal, cluster
from tidelog.server.partition_lookup import hosted_partition

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS = (2, 4)
REQUEST = OffsetForLeaderEpochRequest


def _topics(body: OffsetForLeaderEpochRequest, version: int) -> Iterable[str]:
    return [topic.topic for topic in body.topics]


NEEDS = (
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        _topics,
        Refusal.ROW,
        unless=Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, cluster),
    ),
)


def handle(
    node: Node, request: Request, body: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_row(node, topic.topic, each) for each in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def error_response(
    body: OffsetForLeaderEpochRequest, error: ApiError
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=each.partition, error_code=error.code)
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _row(node: Node, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        end = hosted_partition(node, topic, asked.partition).end_offset_for_epoch(
            asked.leader_epoch, asked.current_leader_epoch
        )
    except ApiError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    return EpochEndOffset(
        partition=asked.partition, leader_epoch=end.leader_epoch, end_offset=end.end_offset
    )
