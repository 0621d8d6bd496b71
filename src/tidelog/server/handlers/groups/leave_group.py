"""LeaveGroup: members of a classic group leave, or are removed by an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.shard import Outcome
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.coordination.group_coordinator import check_group_id

if TYPE_CHECKING:
    from tidelog.coordinator.group_shard import GroupShard
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.LEAVE_GROUP
VERSIONS = (0, 5)
REQUEST = LeaveGroupRequest

_BATCHED_FROM = 3


def handle(node: Node, request: Request, body: LeaveGroupRequest) -> LeaveGroupResponse | Deferred:
    check_group_id(body.group_id)
    is_batched = request.version >= _BATCHED_FROM
    if not is_batched:
        body.members = [MemberIdentity(member_id=body.member_id)]

    def leave(shard: GroupShard, now_ms: int) -> Outcome[LeaveGroupResponse]:
        outcome = shard.leave(body, now_ms)
        response = outcome.response
        if not is_batched and response is not None and response.error_code == ErrorCode.NONE:
            # The old versions know one member and one error.
            response.error_code = response.members[0].error_code
        return outcome

    return node.groups.answer(
        request, body.group_id, leave, lambda error: error_response(body, error)
    )


def error_response(body: LeaveGroupRequest, error: ApiError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)
