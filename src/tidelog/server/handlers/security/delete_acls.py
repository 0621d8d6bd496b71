"""DeleteAcls: refused for every filter while there is no authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DELETE_ACLS
VERSIONS = (1, 3)
REQUEST = DeleteAclsRequest


def handle(node: Node, request: Request, body: DeleteAclsRequest) -> DeleteAclsResponse:
    raise ApiError(ErrorCode.SECURITY_DISABLED, "No authorizer is configured on the broker")


def error_response(body: DeleteAclsRequest, error: ApiError) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
            for _ in body.filters
        ]
    )
