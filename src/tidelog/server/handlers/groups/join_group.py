"""JoinGroup: a member of a classic group joins, or joins again; answered when all have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.coordination.group_coordinator import check_group_id, client_context
from tidelog.server.needs import Need, group_id

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.JOIN_GROUP
VERSIONS = (0, 9)
REQUEST = JoinGroupRequest
NEEDS = (Need(AclOperation.READ, ResourceType.GROUP, group_id),)


def handle(node: Node, request: Request, body: JoinGroupRequest) -> Promise[JoinGroupResponse]:
    check_group_id(body.group_id)
    if request.version == 0:
        # Version 0 has one timeout for both.
        body.rebalance_timeout_ms = body.session_timeout_ms
    ticket: Promise[JoinGroupResponse] = Promise()
    client = client_context(request)
    return node.groups.submit(
        body.group_id, lambda shard, now_ms: shard.join(client, body, ticket, now_ms), ticket
    )


def error_response(body: JoinGroupRequest, error: ApiError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=body.member_id)
