"""LeaveGroup: members of a classic group leave, or are removed by an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.coordination.group_coordinator import check_group_id
from tidelog.server.needs import Need, group_id

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.LEAVE_GROUP
VERSIONS = (0, 5)
REQUEST = LeaveGroupRequest
NEEDS = (Need(AclOperation.READ, ResourceType.GROUP, group_id),)

_BATCHED_FROM = 3


def handle(node: Node, request: Request, body: LeaveGroupRequest) -> Promise[LeaveGroupResponse]:
    check_group_id(body.group_id)
    is_batched = request.version >= _BATCHED_FROM
    if not is_batched:
        body.members = [MemberIdentity(member_id=body.member_id)]

    left = node.groups.submit(body.group_id, lambda shard, now_ms: shard.leave(body, now_ms))
    return left if is_batched else left.then(_for_one_member)


def error_response(body: LeaveGroupRequest, error: ApiError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)


def _for_one_member(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """The old versions know one member and one error."""
    if response.error_code == ErrorCode.NONE:
        response.error_code = response.members[0].error_code
    return response
