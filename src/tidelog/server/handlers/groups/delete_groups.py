"""DeleteGroups: empty groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from tidelog.promise import Promise, gather
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, Refusal

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DELETE_GROUPS
VERSIONS = (0, 2)
REQUEST = DeleteGroupsRequest


def _group_ids(body: DeleteGroupsRequest, version: int) -> Iterable[str]:
    return body.groups_names


NEEDS = (Need(AclOperation.DELETE, ResourceType.GROUP, _group_ids, Refusal.ROW),)


def handle(
    node: Node, request: Request, body: DeleteGroupsRequest
) -> Promise[DeleteGroupsResponse]:
    def delete(group_id: str) -> Promise[DeletableGroupResult]:
        deleted = node.groups.submit(group_id, lambda shard, now_ms: shard.delete([group_id]))
        return deleted.then(itemgetter(0)).recover(ApiError, partial(_error_row, group_id))

    return gather([delete(each) for each in dict.fromkeys(body.groups_names)]).then(
        lambda rows: DeleteGroupsResponse(results=rows)
    )


def error_response(body: DeleteGroupsRequest, error: ApiError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[_error_row(each, error) for each in body.groups_names])


def _error_row(group_id: str, error: ApiError) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error.code)
