"""OffsetDelete: forgets offsets of a group for topics that it does not subscribe to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.shard import Outcome
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.existing_partitions import merged, take_unknown

if TYPE_CHECKING:
    from tidelog.coordinator.group_shard import GroupShard
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.OFFSET_DELETE
VERSIONS = (0, 0)
REQUEST = OffsetDeleteRequest


def handle(
    node: Node, request: Request, body: OffsetDeleteRequest
) -> OffsetDeleteResponse | Deferred:
    by_name = node.image.topics_by_name
    body.topics, unknown = take_unknown(body.topics, lambda topic: by_name.get(topic.name))
    refused = [_unknown_topic(topic.name, indexes) for topic, indexes in unknown]

    def delete(shard: GroupShard, now_ms: int) -> Outcome[OffsetDeleteResponse]:
        outcome = shard.offsets.delete(body)
        if outcome.response is not None:
            outcome.response.topics = merged(refused, outcome.response.topics)
        return outcome

    return node.groups.answer(
        request, body.group_id, delete, lambda error: error_response(body, error)
    )


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
