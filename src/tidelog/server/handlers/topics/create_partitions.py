"""CreatePartitions: topics grow to a new number of partitions; the answer names each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.topic_changes import PartitionAddition, create_partitions
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.controller.mutation_quota import MutationQuota
from tidelog.server.needs import Need, Refusal, topic_names

if TYPE_CHECKING:
    from tidelog.server.controller.controller import Controller
    from tidelog.server.controller.request_context import RequestContext
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.CREATE_PARTITIONS
VERSIONS = (0, 3)
REQUEST = CreatePartitionsRequest
ON_CONTROLLER = True
NEEDS = (Need(AclOperation.ALTER, ResourceType.TOPIC, topic_names, Refusal.ROW),)

# From here on clients know THROTTLING_QUOTA_EXCEEDED.
_QUOTA_ERROR_FROM = 3


def handle(
    node: Node, request: Request, body: CreatePartitionsRequest
) -> Promise[CreatePartitionsResponse]:
    return node.controller.forward(request, body)


def decide(
    controller: Controller, context: RequestContext | None, body: CreatePartitionsRequest
) -> Decision[CreatePartitionsResponse]:
    additions = [
        PartitionAddition(
            topic.name,
            topic.count,
            None
            if topic.assignments is None
            else [tuple(each.broker_ids) for each in topic.assignments],
        )
        for topic in body.topics
    ]
    quota = MutationQuota(controller.quotas, context, refuses_from=_QUOTA_ERROR_FROM)
    decision = create_partitions(
        additions,
        controller.latest,
        controller.random,
        validate_only=body.validate_only,
        charge=quota.charge,
    )
    response = CreatePartitionsResponse(
        throttle_time_ms=quota.throttle_ms,
        results=[_row(row.name, row.error) for row in decision.rows],
    )
    return Decision(decision.records, response)


def error_response(body: CreatePartitionsRequest, error: ApiError) -> CreatePartitionsResponse:
    names = dict.fromkeys(topic.name for topic in body.topics)
    return CreatePartitionsResponse(results=[_row(name, error) for name in names])


def _row(name: str, error: ApiError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=error.message
    )
