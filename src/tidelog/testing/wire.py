"""A raw client for tests: one blocking socket, whatever frames the test wants to send.

    with WireClient("127.0.0.1", port) as client:
        response = client.call(MetadataRequest(topics=None), version=9)

It does nothing by itself: no negotiation, no retries, no reconnects.
"""

from __future__ import annotations

import socket
from struct import Struct
from types import TracebackType
from typing import Any

from tidelog.errors import TidelogError
from tidelog.protocol.headers import decode_response, encode_request
from tidelog.protocol.schema import Message

_LENGTH = Struct(">i")
_TIMEOUT_S = 30.0


class ConnectionEnded(TidelogError):
    """The node closed the connection."""


class WireClient:
    """A connection to a node that sends requests and reads responses one by one."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str | None = "wire",
        timeout_s: float = _TIMEOUT_S,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self.client_id = client_id
        self._correlation_id = 0
        self._asked: dict[int, tuple[int, int]] = {}
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(timeout_s)
        self.socket.connect((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def frame(self, request: Message, version: int) -> bytes:
        """The bytes of a request with the next correlation id, ready to be sent."""
        self._correlation_id += 1
        self._asked[self._correlation_id] = (request.API_KEY, version)
        return encode_request(
            request.API_KEY, version, self._correlation_id, self.client_id, request
        )

    def send(self, request: Message, version: int) -> int:
        """Send a request without reading its answer; returns its correlation id."""
        self.socket.sendall(self.frame(request, version))
        return self._correlation_id

    def receive(self) -> tuple[int, Any]:
        """The next answer, with its correlation id."""
        frame = self.receive_frame()
        (correlation_id,) = _LENGTH.unpack_from(frame)
        api_key, version = self._asked.pop(correlation_id)
        return decode_response(api_key, version, frame)

    def receive_frame(self) -> bytes:
        """The bytes of the next answer, without its length."""
        (size_bytes,) = _LENGTH.unpack(self._receive_exactly(4))
        return self._receive_exactly(size_bytes)

    def call(self, request: Message, version: int) -> Any:
        """Send a request and return its answer."""
        correlation_id = self.send(request, version)
        answered, response = self.receive()
        assert answered == correlation_id, f"answer {answered} to request {correlation_id}"
        return response

    def is_ended(self) -> bool:
        """Wait for the node to close the connection; False if something else came."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive_exactly(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            try:
                part = self.socket.recv(size_bytes - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                raise ConnectionEnded(f"ended after {len(data)} of {size_bytes} bytes")
            data += part
        return bytes(data)
