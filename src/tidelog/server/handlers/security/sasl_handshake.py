"""SaslHandshake: a listener without authentication has no mechanism to offer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.SASL_HANDSHAKE
VERSIONS = (0, 1)
REQUEST = SaslHandshakeRequest


def handle(node: Node, request: Request, body: SaslHandshakeRequest) -> SaslHandshakeResponse:
    raise ApiError(ErrorCode.ILLEGAL_SASL_STATE)


def error_response(body: SaslHandshakeRequest, error: ApiError) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=error.code)
