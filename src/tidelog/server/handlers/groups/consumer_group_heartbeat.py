"""ConsumerGroupHeartbeat: the one call of the consumer group protocol (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.errors import ApiError
from tidelog.server.coordination.group_coordinator import check_consumer_protocol, client_context

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS = (0, 1)
REQUEST = ConsumerGroupHeartbeatRequest


def handle(
    node: Node, request: Request, body: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Deferred:
    check_consumer_protocol(node)
    client = client_context(request)
    return node.groups.answer(
        request,
        body.group_id,
        lambda shard, now_ms: shard.consumer_heartbeat(client, body, now_ms),
        lambda error: error_response(body, error),
    )


def error_response(
    body: ConsumerGroupHeartbeatRequest, error: ApiError
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error.code, error_message=error.message or None
    )
