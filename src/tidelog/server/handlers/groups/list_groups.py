"""ListGroups: the groups that this node coordinates, by state and type if asked."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from tidelog.coordinator.shard import CoordinatorResult
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.errors import ApiError
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


def handle(node: Node, request: Request, body: ListGroupsRequest) -> Promise[ListGroupsResponse]:
    listed = node.groups.host.submit_all(
        lambda shard, now_ms: CoordinatorResult(
            response=shard.list_groups(body.states_filter, body.types_filter)
        )
    )
    return listed.then(lambda groups: ListGroupsResponse(groups=list(chain(*groups))))


def error_response(body: ListGroupsRequest, error: ApiError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.code)
