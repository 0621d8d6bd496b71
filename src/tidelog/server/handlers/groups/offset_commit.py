"""OffsetCommit: how far a group has read.

From version 10 topics are named by id. Topics and partitions that do not exist are refused row by
row; the rest is committed.
"""

from __future__ import annotations

from functools import partial
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
from tidelog.server.coordination.group_coordinator import client_context
from tidelog.server.existing_partitions import merged, take_unknown

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import MetadataImage, TopicImage
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
    find = _find_by_id if request.version >= _TOPIC_IDS_FROM else _find_by_name
    body.topics, unknown = take_unknown(body.topics, partial(find, node.image))
    refused = [_unknown_topic(topic, indexes, request.version) for topic, indexes in unknown]
    if not body.topics:
        return OffsetCommitResponse(topics=refused)
    client = client_context(request)

    def commit(shard: GroupShard, now_ms: int) -> Outcome[OffsetCommitResponse]:
        outcome = shard.offsets.commit(client, body, now_ms)
        if outcome.response is not None:
            outcome.response.topics = merged(refused, outcome.response.topics)
        return outcome

    def failed(error: ApiError) -> OffsetCommitResponse:
        response = error_response(body, error)
        response.topics = merged(refused, response.topics)
        return response

    return node.groups.answer(request, body.group_id, commit, failed)


def error_response(body: OffsetCommitRequest, error: ApiError) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            _error_topic(topic, [row.partition_index for row in topic.partitions], error.code)
            for topic in body.topics
        ]
    )


def _find_by_name(image: MetadataImage, topic: OffsetCommitRequestTopic) -> TopicImage | None:
    return image.topics_by_name.get(topic.name)


def _find_by_id(image: MetadataImage, topic: OffsetCommitRequestTopic) -> TopicImage | None:
    found = image.topics_by_id.get(topic.topic_id)
    topic.name = "" if found is None else found.name
    return found


def _unknown_topic(
    topic: OffsetCommitRequestTopic, indexes: list[int], version: int
) -> OffsetCommitResponseTopic:
    if version >= _TOPIC_IDS_FROM and not topic.name:
        return _error_topic(topic, indexes, ErrorCode.UNKNOWN_TOPIC_ID)
    return _error_topic(topic, indexes, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _error_topic(
    topic: OffsetCommitRequestTopic, indexes: list[int], error: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=index, error_code=error)
            for index in indexes
        ],
    )
