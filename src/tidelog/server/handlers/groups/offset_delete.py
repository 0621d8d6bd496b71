"""OffsetDelete: forgets offsets of a group for topics that it does not subscribe to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.existing_partitions import merged, take_unknown
from tidelog.server.needs import Need, Refusal, group_id, topic_names

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.OFFSET_DELETE
VERSIONS = (0, 0)
REQUEST = OffsetDeleteRequest
NEEDS = (
    Need(AclOperation.DELETE, ResourceType.GROUP, group_id),
    Need(AclOperation.READ, ResourceType.TOPIC, topic_names, Refusal.ROW),
)


def handle(
    node: Node, request: Request, body: OffsetDeleteRequest
) -> Promise[OffsetDeleteResponse]:
    by_name = node.image.topics_by_name
    body.topics, unknown = take_unknown(body.topics, lambda topic: by_name.get(topic.name))
    refused = [_unknown_topic(topic.name, indexes) for topic, indexes in unknown]

    def with_refused(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        response.topics = merged(refused, response.topics)
        return response

    deleted = node.groups.submit(body.group_id, lambda shard, now_ms: shard.offsets.delete(body))
    return deleted.then(with_refused)


def error_response(body: OffsetDeleteRequest, error: ApiError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code)


def _unknown_topic(name: str, indexes: list[int]) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for index in indexes
        ],
    )
