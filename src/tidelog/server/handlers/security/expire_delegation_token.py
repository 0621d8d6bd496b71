"""ExpireDelegationToken: refused, as tokens exist only where clients are authenticated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.EXPIRE_DELEGATION_TOKEN
VERSIONS = (1, 2)
REQUEST = ExpireDelegationTokenRequest


def handle(
    node: Node, request: Request, body: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def error_response(
    body: ExpireDelegationTokenRequest, error: ApiError
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error.code)
