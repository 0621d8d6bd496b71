"""RenewDelegationToken: refused, as tokens exist only where clients are authenticated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.RENEW_DELEGATION_TOKEN
VERSIONS = (1, 2)
REQUEST = RenewDelegationTokenRequest


def handle(
    node: Node, request: Request, body: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def error_response(
    body: RenewDelegationTokenRequest, error: ApiError
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error.code)
