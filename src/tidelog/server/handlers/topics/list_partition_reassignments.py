"""ListPartitionReassignments: partitions that are on their way to other replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.reassignments import list_reassignments
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidelog.protocol.errors import ApiError
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = (0, 0)
REQUEST = ListPartitionReassignmentsRequest
ON_CONTROLLER = True
NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Partitions that are not there or do not move are left out, as in Kafka."""
    asked = None
    if body.topics is not None:
        asked = [
            TopicPartition(topic.name, partition)
            for topic in body.topics
            for partition in topic.partition_indexes
        ]
    by_topic: dict[str, list[OngoingPartitionReassignment]] = {}
    for move in list_reassignments(node.image, asked):
        by_topic.setdefault(move.topic, []).append(
            OngoingPartitionReassignment(
                partition_index=move.partition,
                replicas=list(move.replicas),
                adding_replicas=list(move.adding_replicas),
                removing_replicas=list(move.removing_replicas),
            )
        )
    return ListPartitionReassignmentsResponse(
        topics=[
            OngoingTopicReassignment(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ]
    )


def error_response(
    body: ListPartitionReassignmentsRequest, error: ApiError
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
