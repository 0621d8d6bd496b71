"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.coordinator.shard import Outcome
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.authorized_operations import GROUP_OPERATIONS
from tidelog.server.gathering import gather

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.DESCRIBE_GROUPS
VERSIONS = (0, 6)
REQUEST = DescribeGroupsRequest


def handle(
    node: Node, request: Request, body: DescribeGroupsRequest
) -> DescribeGroupsResponse | Deferred:
    def ask(group_id: str, done: Callable[[DescribedGroup], None]) -> None:
        def answered(described: DescribedGroup | None, error: ApiError | None) -> None:
            if error is not None or described is None:
                code = ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error.code
                described = DescribedGroup(group_id=group_id, error_code=code)
            elif body.include_authorized_operations:
                described.authorized_operations = GROUP_OPERATIONS
            done(described)

        node.groups.submit(
            group_id,
            lambda shard, now_ms: Outcome(response=shard.describe(group_id, request.version)),
            answered,
        )

    return gather(request, body.groups, ask, lambda rows: DescribeGroupsResponse(groups=rows))


def error_response(body: DescribeGroupsRequest, error: ApiError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=each, error_code=error.code) for each in body.groups]
    )
