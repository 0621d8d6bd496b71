"""A request on its way through the node, and the promise of a later answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tidelog.protocol.schema import Message
    from tidelog.server.connection import Connection
    from tidelog.storage.log import FileSlice

# What a connection can send: bytes in memory, or a byte range of a segment by sendfile.
Part: TypeAlias = "bytes | bytearray | memoryview | FileSlice"


class RawResponse:
    """A whole response frame, length prefix and header included, made by the handler itself.

    `parts` are sent in order; a `FileSlice` among them goes out by sendfile.
    """

    __slots__ = ("parts", "size_bytes")

    def __init__(self, parts: list[Part], size_bytes: int) -> None:
        self.parts = parts
        self.size_bytes = size_bytes


class Request:
    """One decoded request header with the bytes of its body.

    `body` is a writable view into the receive buffer: whoever keeps a view of it keeps the
    bytes, and nobody else writes to them meanwhile.
    """

    __slots__ = (
        "api_key",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "received_ms",
        "size_bytes",
        "version",
    )

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        body: memoryview,
        connection: Connection,
        received_ms: int,
        size_bytes: int,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.connection = connection
        self.received_ms = received_ms
        self.size_bytes = size_bytes

    def defer(self) -> Deferred:
        """Promise a later answer; the handler returns what this gives it."""
        return Deferred(self)


class Deferred:
    """The answer to one request, still to come.

    Call `answer` exactly once, on the loop thread. When the client goes away first, `on_close` is
    called (set it to forget what waits); an answer after that is dropped.
    """

    __slots__ = ("closed", "on_close", "ready", "request", "response")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.response: list[Part] | None = None
        self.ready = False
        self.closed = False
        self.on_close: Callable[[], None] | None = None

    def answer(self, response: Message | RawResponse | None) -> None:
        """Send this; None sends nothing (acks=0)."""
        self.request.connection.answer_deferred(self, response)

    def close_connection(self, reason: str) -> None:
        """End the connection instead of answering, as Kafka does for a failed acks=0 produce."""
        self.request.connection.close(reason)
