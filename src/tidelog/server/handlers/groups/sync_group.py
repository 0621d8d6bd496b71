"""SyncGroup: the leader of a classic group brings the assignment, everybody gets their part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.coordination.group_coordinator import check_group_id
from tidelog.server.needs import Need, group_id

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.SYNC_GROUP
VERSIONS = (0, 5)
REQUEST = SyncGroupRequest
NEEDS = (Need(AclOperation.READ, ResourceType.GROUP, group_id),)

_PROTOCOL_FROM = 5


def handle(node: Node, request: Request, body: SyncGroupRequest) -> Promise[SyncGroupResponse]:
    check_group_id(body.group_id)
    if request.version >= _PROTOCOL_FROM and (
        body.protocol_type is None or body.protocol_name is None
    ):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    ticket: Promise[SyncGroupResponse] = Promise()
    return node.groups.submit(
        body.group_id, lambda shard, now_ms: shard.sync(body, ticket, now_ms), ticket
    )


def error_response(body: SyncGroupRequest, error: ApiError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)
