"""JoinGroup: a member of a classic group joins, or joins again; answered when all have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.errors import ApiError
from tidelog.server.coordination.group_coordinator import check_group_id, client_context

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.JOIN_GROUP
VERSIONS = (0, 9)
REQUEST = JoinGroupRequest


def handle(node: Node, request: Request, body: JoinGroupRequest) -> JoinGroupResponse | Deferred:
    check_group_id(body.group_id)
    if request.version == 0:
        # Version 0 has one timeout for both.
        body.rebalance_timeout_ms = body.session_timeout_ms
    ticket = request.defer()
    client = client_context(request)
    return node.groups.answer(
        request,
        body.group_id,
        lambda shard, now_ms: shard.join(client, body, ticket, now_ms),
        lambda error: error_response(body, error),
        ticket,
    )


def error_response(body: JoinGroupRequest, error: ApiError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=body.member_id)
