"""DescribeTopicPartitions: topics page by page, ordered by name, with a limit on partitions."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import MetadataImage, TopicImage
from tidelog.cluster.topic_names import invalid_topic_name, is_internal
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.authorized_operations import TOPIC_OPERATIONS
from tidelog.server.needs import Need, Refusal, Unnamed, topic_names
from tidelog.server.partition_view import partition_view

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSIONS = (0, 0)
REQUEST = DescribeTopicPartitionsRequest
NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, topic_names, Refusal.ROW),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, Unnamed.IN_ANSWER, Refusal.OMISSION),
)


def handle(
    node: Node, request: Request, body: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image = node.image
    cursor = body.cursor
    asked = {topic.name for topic in body.topics}
    if cursor is not None:
        if cursor.partition_index < 0:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"The cursor's partition {cursor.partition_index} is negative",
            )
        if asked and cursor.topic_name not in asked:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"The cursor's topic '{cursor.topic_name}' is not one of the topics asked for",
            )
    names = sorted(asked or image.topics_by_name)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]

    response = DescribeTopicPartitionsResponse()
    room = max(1, min(body.response_partition_limit, node.config.max_request_partition_size_limit))
    for name in names:
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics_by_name.get(name)
        if topic is None:
            response.topics.append(_missing_row(name))
            continue
        start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        end = min(len(topic.partitions), start + room)
        response.topics.append(
            _topic_row(
                image,
                topic,
                start,
                end,
                request.connection.listener.name,
                node.reachability.lost,
            )
        )
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        room -= max(0, end - start)
    return response


def error_response(
    body: DescribeTopicPartitionsRequest, error: ApiError
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name)
            for topic in body.topics
        ]
    )


def _missing_row(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if invalid_topic_name(name) is None
            else ErrorCode.INVALID_TOPIC_EXCEPTION
        ),
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic_row(
    image: MetadataImage,
    topic: TopicImage,
    start: int,
    end: int,
    listener: str,
    lost_brokers: Container[int],
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for partition in topic.partitions[start:end]:
        view = partition_view(image, partition, listener, lost_brokers)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                partition_index=partition.partition,
                leader_id=view.leader,
                leader_epoch=view.leader_epoch,
                replica_nodes=view.replicas,
                isr_nodes=view.isr,
                eligible_leader_replicas=list(partition.eligible_leader_replicas),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=view.offline_replicas,
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
