"""A plain blocking connection to a Kafka broker.

Versions are the newest that both sides know. `call` is one request and its answer; `send` and
`receive` keep several requests in flight, answered in the order in which they were sent.
"""

import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from tidelog.client.errors import AnswerTimeout, ClientError, ConnectError, NotServedError
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.headers import decode_response, encode_request_parts
from tidelog.protocol.registry import messages_of
from tidelog.protocol.schema import Message

R = TypeVar("R", bound=Message)

RESPONSE_BYTES_MAX = 256 * 1024 * 1024

_API_VERSIONS_VERSION = 3

# Of a large answer, so much is waited for before this side wakes up to take it. Without that the
# two sides of a fast connection wake each other for every few kilobytes: on loopback it halves the
# broker's CPU for a large fetch and takes a fifth off this side's. (Only on sockets with a timeout,
# which wait before they receive: a blocking receive takes what is there and then waits for so much
# more, which may not come.)
_WAKE_BYTES = 256 * 1024

_COPIED_BYTES_MAX = 16 * 1024
_LENGTH = struct.Struct(">i")


class WireConnection:
    """One connection over a socket that has a timeout. Not safe to share between threads."""

    def __init__(self, sock: socket.socket, address: str, *, client_id: str) -> None:
        self.address = address
        self._socket = sock
        self._client_id = client_id
        self._correlation_id = 0
        self._pending: deque[tuple[int, ApiKey, int]] = deque()
        try:
            self._versions = self._negotiate()
        except ClientError:
            self.close()
            raise

    @classmethod
    def open(cls, host: str, port: int, *, client_id: str, timeout_s: float = 10.0) -> Self:
        """Connect over TCP."""
        address = f"{host}:{port}"
        try:
            sock = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise ConnectError(f"no broker answers at {address}: {error}") from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock, address, client_id=client_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def in_flight(self) -> int:
        """Requests that were sent and whose answer was not received yet."""
        return len(self._pending)

    def version(self, api_key: ApiKey, version_max: int | None = None) -> int:
        """The newest version of an API that both sides know."""
        served = self._versions.get(api_key)
        known = messages_of(api_key).request
        if served is None:
            raise NotServedError(f"{self.address} does not serve {api_key.name}")
        newest = min(served[1], known.MAX_VERSION)
        if version_max is not None:
            newest = min(newest, version_max)
        if newest < max(served[0], known.MIN_VERSION):
            raise NotServedError(
                f"{self.address} serves {api_key.name} {served[0]}-{served[1]}, "
                f"this client knows {known.MIN_VERSION}-{known.MAX_VERSION}"
            )
        return newest

    def call(self, request: Message, answer: type[R], *, version_max: int | None = None) -> R:
        """Send a request and wait for its answer; nothing else may be in flight."""
        assert not self._pending
        self.send(request, version_max=version_max)
        return self.receive(answer)

    def send(
        self, request: Message, *, version_max: int | None = None, has_answer: bool = True
    ) -> None:
        """Send a request; `receive` gives its answer when those sent before it were received.

        `has_answer` is False for the one request without: Produce with acks=0.
        """
        api_key = ApiKey(type(request).API_KEY)
        self._send(api_key, self.version(api_key, version_max), request, has_answer)

    def fileno(self) -> int:
        """Of the socket: a selector tells when an answer begins to come."""
        return self._socket.fileno()

    def wait(self, timeout_s: float) -> None:
        """Wait for an answer that takes its time by design; AnswerTimeout if none begins to come.

        How long an answer may pause once it has begun is the timeout of the connection.
        """
        poll = select.poll()
        poll.register(self, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            _, api_key, _ = self._pending[0]
            raise AnswerTimeout(
                f"{self.address} did not answer {api_key.name} within {timeout_s:g} s"
            )

    def receive(
        self, answer: type[R], *, allocate: Callable[[int], bytearray | memoryview] = bytearray
    ) -> R:
        """Wait for the answer of the oldest request in flight.

        Records in it are views into the one buffer that the frame was received into; `allocate`
        gives that buffer, of the size that it is asked for.
        """
        response = self._receive_answer(allocate)
        assert isinstance(response, answer)
        return response

    def close(self) -> None:
        self._socket.close()

    def _negotiate(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="tidelog", client_software_version="0")
        self._send(ApiKey.API_VERSIONS, _API_VERSIONS_VERSION, request)
        answer = self.receive(ApiVersionsResponse)
        if answer.error_code:
            raise ClientError(f"{self.address}: {ErrorCode(answer.error_code).name}")
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def _send(
        self, api_key: ApiKey, version: int, request: Message, has_answer: bool = True
    ) -> None:
        self._correlation_id += 1
        parts = encode_request_parts(
            api_key, version, self._correlation_id, self._client_id, request
        )
        try:
            self._send_parts(parts)
        except OSError as error:
            raise ConnectError(f"{self.address} went away: {error}") from error
        if has_answer:
            self._pending.append((self._correlation_id, api_key, version))

    def _send_parts(self, parts: list[bytes]) -> None:
        """Send a frame; small pieces are joined, large ones are not copied."""
        small: list[bytes] = []
        for part in parts:
            if len(part) < _COPIED_BYTES_MAX:
                small.append(part)
                continue
            head = b"".join(small)
            small.clear()
            sent = self._socket.sendmsg((head, part))
            if sent < len(head):
                self._socket.sendall(head[sent:])
                sent = len(head)
            if sent < len(head) + len(part):
                self._socket.sendall(memoryview(part)[sent - len(head) :])
        if small:
            self._socket.sendall(b"".join(small))

    def _receive_answer(self, allocate: Callable[[int], bytearray | memoryview]) -> Message:
        expected, api_key, version = self._pending.popleft()
        try:
            (length,) = _LENGTH.unpack(self._receive_into(bytearray(_LENGTH.size)))
            if not 0 <= length <= RESPONSE_BYTES_MAX:
                raise ClientError(f"{self.address} answered with a frame of {length} bytes")
            frame = self._receive_into(allocate(length))
            correlation_id, response = decode_response(api_key, version, frame)
        except TimeoutError as error:
            waited_s = self._socket.gettimeout()
            raise AnswerTimeout(
                f"{self.address} did not answer {api_key.name} within {waited_s:g} s"
            ) from error
        except OSError as error:
            raise ConnectError(f"{self.address} went away: {error}") from error
        if correlation_id != expected:
            raise ClientError(f"{self.address} answered another request ({correlation_id})")
        return response

    def _receive_into(self, buffer: bytearray | memoryview) -> bytearray | memoryview:
        """Fill the buffer."""
        view = memoryview(buffer)
        at, size = 0, len(view)
        if size > _WAKE_BYTES:
            self._wake_at(_WAKE_BYTES)
            try:
                while size - at >= _WAKE_BYTES:
                    at += self._receive_some(view[at:])
            except TimeoutError:
                # So much does not come in time here, but less may.
                pass
            finally:
                self._wake_at(1)
        while at < size:
            at += self._receive_some(view[at:])
        return buffer

    def _receive_some(self, view: memoryview) -> int:
        received = self._socket.recv_into(view)
        if not received:
            raise ConnectError(f"{self.address} closed the connection")
        return received

    def _wake_at(self, size: int) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
