"""SyncGroup: the leader of a classic group brings the assignment, everybody gets their part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.coordination.group_coordinator import check_group_id

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.SYNC_GROUP
VERSIONS = (0, 5)
REQUEST = SyncGroupRequest

_PROTOCOL_FROM = 5


def handle(node: Node, request: Request, body: SyncGroupRequest) -> SyncGroupResponse | Deferred:
    check_group_id(body.group_id)
    if request.version >= _PROTOCOL_FROM and (
        body.protocol_type is None or body.protocol_name is None
    ):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    ticket = request.defer()
    return node.groups.answer(
        request,
        body.group_id,
        lambda shard, now_ms: shard.sync(body, ticket, now_ms),
        lambda error: error_response(body, error),
        ticket,
    )


def error_response(body: SyncGroupRequest, error: ApiError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)
