"""Frames: what stands before the body of a request or response.

A frame on the wire is four bytes of length, a header and a body. Request headers have tags from
the version on in which the request is flexible, response headers likewise; but the client id is
never compact, and the ApiVersions response never has tags in its header.
"""

import struct

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.codegen.decoding import skip_tags
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.fields import NEVER
from tidelog.protocol.registry import DEFINED, messages_of
from tidelog.protocol.schema import Message
from tidelog.protocol.varint import Buffer, read_uvarint

_REQUEST = struct.Struct(">hhih")
_unpack_request = _REQUEST.unpack_from
_REQUEST_FRAME = struct.Struct(">ihhih")
_RESPONSE_FRAME = struct.Struct(">ii")
_FLEXIBLE_RESPONSE_FRAME = struct.Struct(">iix")
_INT32 = struct.Struct(">i")

_flexible_from: dict[int, int] = {}


class RequestHeader:
    """Which API and version a request is of, and what its answer must repeat."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version},"
            f" correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def _request_flexible_from(api_key: int) -> int:
    """The first version with a flexible header; NEVER for an API that is not known."""
    found = messages_of(api_key).request.FLEXIBLE_FROM if api_key in DEFINED else NEVER
    _flexible_from[api_key] = found
    return found


def decode_request_header(view: Buffer) -> tuple[RequestHeader, int]:
    """The header at the start of a frame (after its length) and where the body begins."""
    try:
        api_key, api_version, correlation_id, length = _unpack_request(view, 0)
        at = 10
        client_id = None
        if length >= 0:
            at += length
            client_id = str(view[10:at], "utf-8")
        flexible_from = _flexible_from.get(api_key)
        if flexible_from is None:
            flexible_from = _request_flexible_from(api_key)
        if api_version >= flexible_from:
            at = skip_tags(view, at + 1, view[at]) if view[at] < 0x80 else _skip_many(view, at)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a request header is malformed: {error}") from None
    if at > len(view):
        raise ProtocolError(f"a request header of {at} bytes in a frame of {len(view)}")
    return RequestHeader(api_key, api_version, correlation_id, client_id), at


def _skip_many(view: Buffer, at: int) -> int:
    count, at = read_uvarint(view, at)
    return skip_tags(view, at, count)


def decode_request(frame: Buffer) -> tuple[RequestHeader, Message]:
    """The request in a frame (after its length)."""
    header, at = decode_request_header(frame)
    return header, messages_of(header.api_key).request.decode(frame, header.api_version, at)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Message
) -> bytes:
    """The frame of a request, with its length."""
    return b"".join(encode_request_parts(api_key, version, correlation_id, client_id, message))


def encode_request_parts(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Message
) -> list[bytes]:
    """The same in pieces: the records of a Produce request are those of the message, not a copy."""
    body = message.encode_parts(version)
    name = b"" if client_id is None else client_id.encode()
    tags = b"\x00" if version >= message.FLEXIBLE_FROM else b""
    size_bytes = _REQUEST.size + len(name) + len(tags) + sum(map(len, body))
    name_length = -1 if client_id is None else len(name)
    head = _REQUEST_FRAME.pack(size_bytes, api_key, version, correlation_id, name_length)
    return [head, name, tags, *body]


def has_flexible_response_header(api_key: int, version: int, response: type[Message]) -> bool:
    return version >= response.FLEXIBLE_FROM and api_key != ApiKey.API_VERSIONS


def encode_response(api_key: int, version: int, correlation_id: int, message: Message) -> bytes:
    """The frame of a response, with its length."""
    body = message.encode(version)
    if has_flexible_response_header(api_key, version, type(message)):
        return _FLEXIBLE_RESPONSE_FRAME.pack(len(body) + 5, correlation_id) + body
    return _RESPONSE_FRAME.pack(len(body) + 4, correlation_id) + body


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Message]:
    """The correlation id and message of a response frame (after its length)."""
    response = messages_of(api_key).response
    try:
        (correlation_id,) = _INT32.unpack_from(frame)
        at = 4
        if has_flexible_response_header(api_key, version, response):
            at = _skip_many(frame, at)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"a response header is malformed: {error}") from None
    return correlation_id, response.decode(frame, version, at)
