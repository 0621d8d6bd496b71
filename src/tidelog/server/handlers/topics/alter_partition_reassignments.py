"""AlterPartitionReassignments: move partitions to other replicas, or cancel a move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.elections import PartitionRow
from tidelog.cluster.controller.reassignments import (
    Reassignment,
    alter_partition_reassignments,
)
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.controller.controller import Controller
    from tidelog.server.controller.request_context import RequestContext
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS = (0, 1)
REQUEST = AlterPartitionReassignmentsRequest
ON_CONTROLLER = True
NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: AlterPartitionReassignmentsRequest
) -> Promise[AlterPartitionReassignmentsResponse]:
    return node.controller.forward(request, body)


def decide(
    controller: Controller, context: RequestContext | None, body: AlterPartitionReassignmentsRequest
) -> Decision[AlterPartitionReassignmentsResponse]:
    decision = alter_partition_reassignments(
        _asked(body),
        controller.latest,
        controller.settings,
        allow_replication_factor_change=body.allow_replication_factor_change,
    )
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change,
        responses=_rows(decision.rows),
    )
    return decision.answering(response)


def error_response(
    body: AlterPartitionReassignmentsRequest, error: ApiError
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.message,
        responses=_rows([PartitionRow(each.topic, each.partition, error) for each in _asked(body)]),
    )


def _asked(body: AlterPartitionReassignmentsRequest) -> list[Reassignment]:
    return [
        Reassignment(topic.name, each.partition_index, each.replicas)
        for topic in body.topics
        for each in topic.partitions
    ]


def _rows(rows: list[PartitionRow]) -> list[ReassignableTopicResponse]:
    by_topic: dict[str, list[ReassignablePartitionResponse]] = {}
    for row in rows:
        result = ReassignablePartitionResponse(partition_index=row.partition)
        if row.error is not None:
            result.error_code = row.error.code
            result.error_message = row.error.message
        by_topic.setdefault(row.topic, []).append(result)
    return [
        ReassignableTopicResponse(name=topic, partitions=results)
        for topic, results in by_topic.items()
    ]
