"""OffsetCommit: how far a group has read.

From version 10 topics are named by id. Topics and partitions that do not exist are refused row by
row; the rest is committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.coordination.group_coordinator import client_context
from tidelog.server.existing_partitions import merged, take_unknown
from tidelog.server.needs import Need, Refusal, group_id

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import MetadataImage, TopicImage
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.OFFSET_COMMIT
VERSIONS = (2, 10)
REQUEST = OffsetCommitRequest

_TOPIC_IDS_FROM = 10


def _topics(body: OffsetCommitRequest, version: int) -> Iterable[str | bytes]:
    by_id = version >= _TOPIC_IDS_FROM
    return [topic.topic_id if by_id else topic.name for topic in body.topics]


NEEDS = (
    Need(AclOperation.READ, ResourceType.GROUP, group_id),
    Need(AclOperation.READ, ResourceType.TOPIC, _topics, Refusal.ROW),
)


def handle(
    node: Node, request: Request, body: OffsetCommitRequest
) -> OffsetCommitResponse | Promise[OffsetCommitResponse]:
    find = _find_by_id if request.version >= _TOPIC_IDS_FROM else _find_by_name
    body.topics, unknown = take_unknown(body.topics, partial(find, node.image))
    refused = [_unknown_topic(topic, indexes, request.version) for topic, indexes in unknown]
    if not body.topics:
        return OffsetCommitResponse(topics=refused)
    client = client_context(request)

    def with_refused(response: OffsetCommitResponse) -> OffsetCommitResponse:
        response.topics = merged(refused, response.topics)
        return response

    committed = node.groups.submit(
        body.group_id, lambda shard, now_ms: shard.offsets.commit(client, body, now_ms)
    )
    return committed.recover(ApiError, partial(error_response, body)).then(with_refused)


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
