"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinator.shard import CoordinatorResult
from tidelog.promise import Promise, gather
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.authorized_operations import GROUP_OPERATIONS
from tidelog.server.needs import Need, Refusal

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DESCRIBE_GROUPS
VERSIONS = (0, 6)
REQUEST = DescribeGroupsRequest


def _group_ids(body: DescribeGroupsRequest, version: int) -> Iterable[str]:
    return body.groups


NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.GROUP, _group_ids, Refusal.ROW),)


def handle(
    node: Node, request: Request, body: DescribeGroupsRequest
) -> Promise[DescribeGroupsResponse]:
    def describe(group_id: str) -> Promise[DescribedGroup]:
        described = node.groups.submit(
            group_id,
            lambda shard, now_ms: CoordinatorResult(
                response=shard.describe(group_id, request.version)
            ),
        )
        if body.include_authorized_operations:
            described = described.then(_with_operations)
        return described.recover(ApiError, partial(_error_row, group_id))

    return gather([describe(each) for each in body.groups]).then(
        lambda rows: DescribeGroupsResponse(groups=rows)
    )


def error_response(body: DescribeGroupsRequest, error: ApiError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_error_row(each, error) for each in body.groups])


def _with_operations(described: DescribedGroup) -> DescribedGroup:
    described.authorized_operations = GROUP_OPERATIONS
    return described


def _error_row(group_id: str, error: ApiError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error.code)
