"""Heartbeat: a member of a classic group is alive; the answer says whether it must rejoin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.shard import CoordinatorResult
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.coordination.group_coordinator import check_group_id
from tidelog.server.needs import Need, group_id

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.HEARTBEAT
VERSIONS = (0, 4)
REQUEST = HeartbeatRequest
NEEDS = (Need(AclOperation.READ, ResourceType.GROUP, group_id),)


def handle(node: Node, request: Request, body: HeartbeatRequest) -> Promise[HeartbeatResponse]:
    check_group_id(body.group_id)
    return node.groups.submit(
        body.group_id,
        lambda shard, now_ms: CoordinatorResult(response=shard.heartbeat(body, now_ms)),
    )


def error_response(body: HeartbeatRequest, error: ApiError) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error.code)
