"""OffsetFetch: how far groups have read.

Up to version 7 about one group, from 8 about many, whose coordinators are all asked; from 10 topics
are named by id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.coordinator.shard import Outcome
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.gathering import gather

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import MetadataImage
    from tidelog.coordinator.group_shard import GroupShard
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.OFFSET_FETCH
VERSIONS = (1, 10)
REQUEST = OffsetFetchRequest

_TOP_LEVEL_ERROR_FROM = 2
_GROUPS_FROM = 8
_TOPIC_IDS_FROM = 10


def handle(
    node: Node, request: Request, body: OffsetFetchRequest
) -> OffsetFetchResponse | Deferred:
    version = request.version
    groups = body.groups if version >= _GROUPS_FROM else [_single_group(body)]
    unknown = [_take_unknown_ids(node.image, group, version) for group in groups]

    def ask(
        group: OffsetFetchRequestGroup, done: Callable[[OffsetFetchResponseGroup], None]
    ) -> None:
        def answered(response: OffsetFetchResponseGroup | None, error: ApiError | None) -> None:
            if error is not None or response is None:
                code = ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error.code
                response = OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
            done(response)

        def fetch(shard: GroupShard, now_ms: int) -> Outcome[OffsetFetchResponseGroup]:
            response = shard.offsets.fetch(group, require_stable=body.require_stable)
            return Outcome(response=response)

        node.groups.submit(group.group_id, fetch, answered)

    def respond(results: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
        if version < _GROUPS_FROM:
            return _single_response(results[0], body, version)
        for result, rows in zip(results, unknown, strict=True):
            if version >= _TOPIC_IDS_FROM:
                _put_ids(node.image, result)
            if result.error_code == ErrorCode.NONE:
                result.topics += rows
        return OffsetFetchResponse(groups=results)

    return gather(request, groups, ask, respond)


def error_response(body: OffsetFetchRequest, error: ApiError) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=error.code,
        groups=[
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
            for group in body.groups
        ],
    )


def _single_group(body: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if body.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in body.topics
        ]
    return OffsetFetchRequestGroup(group_id=body.group_id, topics=topics)


def _single_response(
    group: OffsetFetchResponseGroup, body: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    if group.error_code and version < _TOP_LEVEL_ERROR_FROM:
        # Version 1 can only say it in every row.
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=-1,
                            metadata="",
                            error_code=group.error_code,
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in body.topics or []
            ]
        )
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=row.partition_index,
                    committed_offset=row.committed_offset,
                    committed_leader_epoch=row.committed_leader_epoch,
                    metadata=row.metadata,
                    error_code=row.error_code,
                )
                for row in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _take_unknown_ids(
    image: MetadataImage, group: OffsetFetchRequestGroup, version: int
) -> list[OffsetFetchResponseTopics]:
    """Names the topics of a request by ids; those that nobody knows come back as error rows."""
    if version < _TOPIC_IDS_FROM or group.topics is None:
        return []
    known = []
    unknown = []
    for topic in group.topics:
        found = image.topics_by_id.get(topic.topic_id)
        if found is not None:
            topic.name = found.name
            known.append(topic)
            continue
        unknown.append(
            OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=-1,
                        metadata="",
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    )
                    for index in topic.partition_indexes
                ],
            )
        )
    group.topics = known
    return unknown


def _put_ids(image: MetadataImage, group: OffsetFetchResponseGroup) -> None:
    """Offsets of topics that are gone cannot be named by id and are left out."""
    by_name = image.topics_by_name
    group.topics = [topic for topic in group.topics if topic.name in by_name]
    for topic in group.topics:
        topic.topic_id = by_name[topic.name].topic_id
