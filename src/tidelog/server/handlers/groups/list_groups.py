"""ListGroups: the groups that this node coordinates, by state and type if asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, Refusal, Unnamed, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.LIST_GROUPS
VERSIONS = (0, 5)
REQUEST = ListGroupsRequest
NEEDS = (
    Need(
        AclOperation.DESCRIBE,
        ResourceType.GROUP,
        Unnamed.IN_ANSWER,
        Refusal.OMISSION,
        unless=Need(AclOperation.DESCRIBE, ResourceType.CLUSTER, cluster),
    ),
)


def handle(node: Node, request: Request, body: ListGroupsRequest) -> ListGroupsResponse:
    host = node.groups.host
    if host.is_loading():
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    groups = []
    for _, shard in host.loaded_shards():
        groups += shard.list_groups(body.states_filter, body.types_filter)
    return ListGroupsResponse(groups=groups)


def error_response(body: ListGroupsRequest, error: ApiError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.code)
