"""SaslAuthenticate: out of place on a listener without authentication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.SASL_AUTHENTICATE
VERSIONS = (0, 2)
REQUEST = SaslAuthenticateRequest


def handle(node: Node, request: Request, body: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    raise ApiError(
        ErrorCode.ILLEGAL_SASL_STATE,
        f"The listener {request.connection.listener.name} does not authenticate clients",
    )


def error_response(body: SaslAuthenticateRequest, error: ApiError) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error.code, error_message=error.message)
