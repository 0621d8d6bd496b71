"""CreateDelegationToken: refused, as tokens exist only where clients are authenticated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.CREATE_DELEGATION_TOKEN
VERSIONS = (1, 3)
REQUEST = CreateDelegationTokenRequest


def handle(
    node: Node, request: Request, body: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def error_response(
    body: CreateDelegationTokenRequest, error: ApiError
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(error_code=error.code)
