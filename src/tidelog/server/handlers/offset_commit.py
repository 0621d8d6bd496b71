"""OffsetCommit: how far a group has read.

From version 10 topics are named by id. Topics that do not exist are refused row by row; the rest
is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.shard import Outcome
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.group_coordinator import client_context

if TYPE_CHECKING:
    from tidelog.cluster.image import MetadataImage
    from tidelog.coordinator.group_shard import GroupShard
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.OFFSET_COMMIT
VERSIONS = (2, 10)
REQUEST = OffsetCommitRequest

_TOPIC_IDS_FROM = 10


def handle(
    node: Node, request: Request, body: OffsetCommitRequest
) -> OffsetCommitResponse | Deferred:
    refused: list[OffsetCommitResponseTopic] = []
    accepted: list[OffsetCommitRequestTopic] = []
    for topic in body.topics:
        error = _topic_error(node.image, topic, request.version)
        if error is None:
            accepted.append(topic)
        else:
            refused.append(_error_topic(topic, error))
    body.topics = accepted
    client = client_context(request)

    def commit(shard: GroupShard, now_ms: int) -> Outcome[OffsetCommitResponse]:
        outcome = shard.offsets.commit(client, body, now_ms)
        if refused and outcome.response is not None:
            outcome.response.topics += refused
        return outcome

    def failed(error: ApiError) -> OffsetCommitResponse:
        response = error_response(body, error)
        response.topics += refused
        return response

    if refused and not accepted:
        return OffsetCommitResponse(topics=refused)
    return node.groups.answer(request, body.group_id, commit, failed)


def error_response(body: OffsetCommitRequest, error: ApiError) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_error_topic(topic, error.code) for topic in body.topics])


def _topic_error(
    image: MetadataImage, topic: OffsetCommitRequestTopic, version: int
) -> ErrorCode | None:
    if version >= _TOPIC_IDS_FROM:
        found = image.topics_by_id.get(topic.topic_id)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        topic.name = found.name
        return None
    return None if topic.name in image.topics_by_name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _error_topic(topic: OffsetCommitRequestTopic, error: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=row.partition_index, error_code=error)
            for row in topic.partitions
        ],
    )
