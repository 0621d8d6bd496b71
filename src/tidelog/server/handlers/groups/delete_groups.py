"""DeleteGroups: empty groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.gathering import gather

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.DELETE_GROUPS
VERSIONS = (0, 2)
REQUEST = DeleteGroupsRequest


def handle(
    node: Node, request: Request, body: DeleteGroupsRequest
) -> DeleteGroupsResponse | Deferred:
    def ask(group_id: str, done: Callable[[DeletableGroupResult], None]) -> None:
        def answered(rows: list[DeletableGroupResult] | None, error: ApiError | None) -> None:
            if rows:
                done(rows[0])
                return
            code = ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error.code
            done(DeletableGroupResult(group_id=group_id, error_code=code))

        node.groups.submit(group_id, lambda shard, now_ms: shard.delete([group_id]), answered)

    groups = list(dict.fromkeys(body.groups_names))
    return gather(request, groups, ask, lambda rows: DeleteGroupsResponse(results=rows))


def error_response(body: DeleteGroupsRequest, error: ApiError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=each, error_code=error.code) for each in body.groups_names
        ]
    )
