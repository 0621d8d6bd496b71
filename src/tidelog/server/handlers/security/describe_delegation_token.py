"""DescribeDelegationToken: refused, as there are tokens only where clients are authenticated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DESCRIBE_DELEGATION_TOKEN
VERSIONS = (1, 3)
REQUEST = DescribeDelegationTokenRequest


def handle(
    node: Node, request: Request, body: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def error_response(
    body: DescribeDelegationTokenRequest, error: ApiError
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=error.code)
