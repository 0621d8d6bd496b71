"""Envelope (key 58): a broker forwards a client's request to the controller, with who asks."""

from tidelog.protocol.schema import BYTES, INT16, Message, field


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    """`request_data` is the client's request with its header; `client_host_address` are the bytes
    of an IP address."""

    request_data: bytes = field(BYTES, "0+")
    request_principal: bytes | None = field(BYTES, "0+", nullable="0+")
    client_host_address: bytes = field(BYTES, "0+")


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    """`response_data` is the answer to the client with its header; None with an error."""

    response_data: bytes | None = field(BYTES, "0+", nullable="0+", default=None)
    error_code: int = field(INT16, "0+")
