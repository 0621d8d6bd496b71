"""ElectLeaders: put the preferred leader back, or any live replica when the topic has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.elections import PartitionRow, elect_leaders
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidelog.protocol.errors import ApiError
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.controller.controller import Controller
    from tidelog.server.controller.request_context import RequestContext
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.ELECT_LEADERS
VERSIONS = (0, 2)
REQUEST = ElectLeadersRequest
ON_CONTROLLER = True
NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: ElectLeadersRequest
) -> Promise[ElectLeadersResponse]:
    return node.controller.forward(request, body)


def decide(
    controller: Controller, context: RequestContext | None, body: ElectLeadersRequest
) -> Decision[ElectLeadersResponse]:
    decision = elect_leaders(
        body.election_type,
        _asked(body),
        controller.latest,
        controller.settings,
        controller.heartbeats,
    )
    return decision.answering(ElectLeadersResponse(replica_election_results=_rows(decision.rows)))


def error_response(body: ElectLeadersRequest, error: ApiError) -> ElectLeadersResponse:
    rows = [PartitionRow(topic, partition, error) for topic, partition in _asked(body) or []]
    return ElectLeadersResponse(error_code=error.code, replica_election_results=_rows(rows))


def _asked(body: ElectLeadersRequest) -> list[TopicPartition] | None:
    """None means all partitions."""
    if body.topic_partitions is None:
        return None
    return [
        TopicPartition(topic.topic, partition)
        for topic in body.topic_partitions
        for partition in topic.partitions
    ]


def _rows(rows: list[PartitionRow]) -> list[ReplicaElectionResult]:
    by_topic: dict[str, list[PartitionResult]] = {}
    for row in rows:
        result = PartitionResult(partition_id=row.partition)
        if row.error is not None:
            result.error_code = row.error.code
            result.error_message = row.error.message
        by_topic.setdefault(row.topic, []).append(result)
    return [
        ReplicaElectionResult(topic=topic, partition_result=results)
        for topic, results in by_topic.items()
    ]
