"""A client's request on its way to the controller of another node, and the answer back.

An Envelope holds the request as the client sent it, header included, with who the client is and
where it is; so the controller decides on the same as if the client had asked it directly. The
principal is in the form that Kafka's default builder writes.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from tidelog.protocol.apis.envelope import EnvelopeRequest, EnvelopeResponse
from tidelog.protocol.errors import ErrorCode, ProtocolError
from tidelog.protocol.headers import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from tidelog.protocol.schema import BOOL, STRING, Message, field
from tidelog.server.controller.request_context import RequestContext

_LENGTH_BYTES = 4
_PRINCIPAL_VERSION = 0
_NO_ADDRESS = bytes(4)


class PrincipalData(Message, api_key=0, versions="0", flexible="0+"):
    type: str = field(STRING, "0+")
    name: str = field(STRING, "0+")
    token_authenticated: bool = field(BOOL, "0+")


def wrap(body: Message, context: RequestContext) -> EnvelopeRequest:
    """The request of a client, to be forwarded."""
    kind, _, name = context.principal.partition(":")
    principal = PrincipalData(type=kind, name=name).encode(_PRINCIPAL_VERSION)
    frame = encode_request(body.API_KEY, context.version, 0, context.client_id, body)
    return EnvelopeRequest(
        request_data=frame[_LENGTH_BYTES:],
        request_principal=_PRINCIPAL_VERSION.to_bytes(2, "big") + principal,
        client_host_address=_packed(context.client_host),
    )


def unwrap_response(envelope: EnvelopeResponse, body: Message, context: RequestContext) -> Any:
    """The controller's answer to the client's request. Raises ProtocolError."""
    if envelope.response_data is None:
        raise ProtocolError("an envelope without an answer")
    return decode_response(body.API_KEY, context.version, envelope.response_data)[1]


def unwrap(envelope: EnvelopeRequest, received_ms: int) -> tuple[Message, RequestContext]:
    """What another node forwards. Raises ProtocolError."""
    header, body = decode_request(envelope.request_data)
    raw = envelope.request_principal
    if raw is None or int.from_bytes(raw[:2], "big") != _PRINCIPAL_VERSION:
        raise ProtocolError("a forwarded request without a principal that this node can read")
    principal = PrincipalData.decode(raw, _PRINCIPAL_VERSION, 2)
    return body, RequestContext(
        f"{principal.type}:{principal.name}",
        header.client_id,
        _unpacked(envelope.client_host_address),
        header.api_version,
        received_ms,
    )


def wrap_response(envelope: EnvelopeRequest, response: Message) -> EnvelopeResponse:
    """The answer to what `envelope` holds."""
    header, _ = decode_request_header(envelope.request_data)
    frame = encode_response(header.api_key, header.api_version, header.correlation_id, response)
    return EnvelopeResponse(response_data=frame[_LENGTH_BYTES:], error_code=ErrorCode.NONE)


def _packed(host: str) -> bytes:
    try:
        return ip_address(host).packed
    except ValueError:
        return _NO_ADDRESS  # a Unix socket, or a simulated host


def _unpacked(address: bytes) -> str:
    try:
        return str(ip_address(address))
    except ValueError as error:
        raise ProtocolError(f"a forwarded request of a client at no address: {error}") from error
