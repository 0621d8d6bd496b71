"""OffsetFetch: how far groups have read.

Up to version 7 about one group, from 8 about many, whose coordinators are all asked; from 10 topics
are named by id.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinator.shard import CoordinatorResult
from tidelog.promise import Promise, gather
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
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, Refusal, Unnamed

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import MetadataImage
    from tidelog.coordinator.group_shard import GroupShard
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.OFFSET_FETCH
VERSIONS = (1, 10)
REQUEST = OffsetFetchRequest

_TOP_LEVEL_ERROR_FROM = 2
_GROUPS_FROM = 8
_TOPIC_IDS_FROM = 10


def _group_ids(body: OffsetFetchRequest, version: int) -> Iterable[str]:
    return [group.group_id for group in _groups(body, version)]


def _topics(body: OffsetFetchRequest, version: int) -> Iterable[str | bytes]:
    by_id = version >= _TOPIC_IDS_FROM
    return [
        topic.topic_id if by_id else topic.name
        for group in _groups(body, version)
        for topic in group.topics or ()
    ]


def _groups(body: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    return body.groups if version >= _GROUPS_FROM else [_single_group(body)]


NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.GROUP, _group_ids, Refusal.ROW),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, _topics, Refusal.ROW),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, Unnamed.IN_ANSWER, Refusal.OMISSION),
)


def handle(node: Node, request: Request, body: OffsetFetchRequest) -> Promise[OffsetFetchResponse]:
    version = request.version
    groups = _groups(body, version)
    unknown = [_take_unknown_ids(node.image, group, version) for group in groups]

    def fetch(group: OffsetFetchRequestGroup) -> Promise[OffsetFetchResponseGroup]:
        def ask(shard: GroupShard, now_ms: int) -> CoordinatorResult[OffsetFetchResponseGroup]:
            response = shard.offsets.fetch(group, require_stable=body.require_stable)
            return CoordinatorResult(response=response)

        fetched = node.groups.submit(group.group_id, ask)
        return fetched.recover(ApiError, partial(_error_group, group))

    def respond(results: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
        if version < _GROUPS_FROM:
            return _single_response(results[0], body, version)
        for result, rows in zip(results, unknown, strict=True):
            if version >= _TOPIC_IDS_FROM:
                _put_ids(node.image, result)
            if result.error_code == ErrorCode.NONE:
                result.topics += rows
        return OffsetFetchResponse(groups=results)

    return gather([fetch(group) for group in groups]).then(respond)


def error_response(body: OffsetFetchRequest, error: ApiError) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=error.code,
        groups=[_error_group(group, error) for group in body.groups],
    )


def _error_group(group: OffsetFetchRequestGroup, error: ApiError) -> OffsetFetchResponseGroup:
    code = error.code
    if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        # Consumers before 3.9 give up at it, of all coordinators' answers only here.
        code = ErrorCode.NOT_COORDINATOR
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)


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
