"""A request on its way through the node, and the place of its answer among the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tidelog.protocol.headers import encode_response

if TYPE_CHECKING:
    from tidelog.protocol.schema import Message
    from tidelog.server.network.connection import Connection
    from tidelog.server.network.file_passing import PassedSlice
    from tidelog.storage.segment.log_slice import FileSlice

# What a connection can send: bytes in memory, a byte range of a segment by sendfile, or to a reader
# on this machine that range by its file.
Part: TypeAlias = "bytes | bytearray | memoryview | FileSlice | PassedSlice"


class RawResponse:
    """A whole response frame, length prefix and header included, made by the handler itself.

    `parts` are sent in order; a `FileSlice` among them goes out by sendfile.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts


class Request:
    """One decoded request header with the bytes of its body.

    `body` is a writable view into the receive buffer and there only while the handler runs: a
    handler that needs bytes of it later keeps a view of its own, which keeps those bytes as they
    are.
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

    def defer(self, *, is_exclusive: bool = True) -> Deferred:
        """Keep the place of an answer that comes later.

        Until then the connection's next requests wait. Not exclusive is a request that has done
        its work and only waits for durability: others of its kind may follow it at once.
        """
        return Deferred(self, is_exclusive)


class Deferred:
    """A connection's slot for the answer to one request: answers leave in the order of the
    requests.

    Call `answer` exactly once, on the loop thread. When the client goes away first, `on_close` is
    called (set it to forget what waits); an answer after that is dropped.
    """

    __slots__ = ("closed", "is_exclusive", "on_close", "parts", "ready", "request")

    def __init__(self, request: Request, is_exclusive: bool) -> None:
        self.request = request
        self.is_exclusive = is_exclusive
        self.parts: bytes | list[Part] | None = None
        self.ready = False
        self.closed = False
        self.on_close: Callable[[], object] | None = None

    def answer(self, response: Message | bytes | RawResponse | None) -> None:
        """Send this: a message, a whole frame, or for None nothing at all."""
        if self.closed:
            return
        # What it forgets usually holds this slot: kept, each would be a cycle for the collector.
        self.on_close = None
        request = self.request
        parts: bytes | list[Part] | None
        if response is None or isinstance(response, bytes):
            parts = response
        elif isinstance(response, RawResponse):
            parts = response.parts
        else:
            parts = encode_response(
                request.api_key, request.version, request.correlation_id, response
            )
        request.connection.answer_deferred(self, parts)

    def give_up(self) -> None:
        """The client has gone: forget what waits for it."""
        self.closed = True
        on_close, self.on_close = self.on_close, None
        if on_close is not None and not self.ready:
            on_close()
