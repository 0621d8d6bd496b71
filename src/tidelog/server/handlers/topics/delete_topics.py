"""DeleteTopics: topics go, chosen by name or, from version 6, by id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.topic_changes import TopicSelector, delete_topics
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tidelog.protocol.errors import ApiError
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.controller.mutation_quota import MutationQuota
from tidelog.server.needs import Need, Refusal, cluster

if TYPE_CHECKING:
    from tidelog.server.controller.controller import Controller
    from tidelog.server.controller.request_context import RequestContext
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DELETE_TOPICS
VERSIONS = (1, 6)
REQUEST = DeleteTopicsRequest
ON_CONTROLLER = True

# From here on clients know THROTTLING_QUOTA_EXCEEDED.
_QUOTA_ERROR_FROM = 5


def _topics(body: DeleteTopicsRequest, version: int) -> Iterable[str | bytes]:
    names = [topic.name for topic in body.topics if topic.name is not None]
    ids = [topic.topic_id for topic in body.topics if topic.topic_id != ZERO_UUID]
    return [*body.topic_names, *names, *ids]


NEEDS = (
    Need(
        AclOperation.DELETE,
        ResourceType.TOPIC,
        _topics,
        Refusal.ROW,
        unless=Need(AclOperation.DELETE, ResourceType.CLUSTER, cluster),
    ),
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        _topics,
        Refusal.ROW,
        unless=Need(AclOperation.DELETE, ResourceType.CLUSTER, cluster),
    ),
)


def handle(
    node: Node, request: Request, body: DeleteTopicsRequest
) -> Promise[DeleteTopicsResponse]:
    return node.controller.forward(request, body)


def decide(
    controller: Controller, context: RequestContext | None, body: DeleteTopicsRequest
) -> Decision[DeleteTopicsResponse]:
    quota = MutationQuota(controller.quotas, context, refuses_from=_QUOTA_ERROR_FROM)
    decision = delete_topics(
        _asked(body), controller.latest, controller.settings, charge=quota.charge
    )
    response = DeleteTopicsResponse(
        throttle_time_ms=quota.throttle_ms,
        responses=[_row(row.name, row.topic_id, row.error) for row in decision.rows],
    )
    return Decision(decision.records, response)


def error_response(body: DeleteTopicsRequest, error: ApiError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[_row(each.name, each.topic_id, error) for each in _asked(body)]
    )


def _asked(body: DeleteTopicsRequest) -> list[TopicSelector]:
    return [
        *(TopicSelector(name=name) for name in body.topic_names),
        *(TopicSelector(name=topic.name, topic_id=topic.topic_id) for topic in body.topics),
    ]


def _row(name: str | None, topic_id: bytes, error: ApiError | None) -> DeletableTopicResult:
    if error is None:
        return DeletableTopicResult(name=name, topic_id=topic_id)
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
    )
