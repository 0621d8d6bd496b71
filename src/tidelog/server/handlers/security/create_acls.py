"""CreateAcls: refused for every entry while no authorizer would enforce them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.CREATE_ACLS
VERSIONS = (1, 3)
REQUEST = CreateAclsRequest


def handle(node: Node, request: Request, body: CreateAclsRequest) -> CreateAclsResponse:
    raise ApiError(ErrorCode.SECURITY_DISABLED, "No authorizer is configured on the broker")


def error_response(body: CreateAclsRequest, error: ApiError) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=error.code, error_message=error.message)
            for _ in body.creations
        ]
    )
