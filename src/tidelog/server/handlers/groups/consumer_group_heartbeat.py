"""ConsumerGroupHeartbeat: the one call of the consumer group protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.coordination.group_coordinator import check_consumer_protocol, client_context
from tidelog.server.needs import Need, Refusal, Unnamed, group_id

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS = (0, 1)
REQUEST = ConsumerGroupHeartbeatRequest


def _subscribed_topics(body: ConsumerGroupHeartbeatRequest, version: int) -> Iterable[str]:
    return body.subscribed_topic_names or ()


NEEDS = (
    Need(AclOperation.READ, ResourceType.GROUP, group_id),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, _subscribed_topics),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, Unnamed.IN_ANSWER, Refusal.OMISSION),
)


def handle(
    node: Node, request: Request, body: ConsumerGroupHeartbeatRequest
) -> Promise[ConsumerGroupHeartbeatResponse]:
    check_consumer_protocol(node)
    client = client_context(request)
    return node.groups.submit(
        body.group_id, lambda shard, now_ms: shard.consumer_heartbeat(client, body, now_ms)
    )


def error_response(
    body: ConsumerGroupHeartbeatRequest, error: ApiError
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error.code, error_message=error.message or None
    )
