"""Heartbeat: a member of a classic group is alive; the answer says whether it must rejoin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.shard import Outcome
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.errors import ApiError
from tidelog.server.coordination.group_coordinator import check_group_id

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.HEARTBEAT
VERSIONS = (0, 4)
REQUEST = HeartbeatRequest


def handle(node: Node, request: Request, body: HeartbeatRequest) -> HeartbeatResponse | Deferred:
    check_group_id(body.group_id)
    return node.groups.answer(
        request,
        body.group_id,
        lambda shard, now_ms: Outcome(response=shard.heartbeat(body, now_ms)),
        lambda error: error_response(body, error),
    )


def error_response(body: HeartbeatRequest, error: ApiError) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error.code)
