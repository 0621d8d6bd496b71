"""A plain blocking connection to a Kafka broker, for the calls that librdkafka does not offer.

Versions are the newest that both sides know. `call` is one request and its answer; `send` and
`receive` keep several requests in flight, answered in the order in which they were sent. `Cluster`
finds the broker that a call must go to.
"""

import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar

from tidelog.client.errors import ClientError, ConnectError, CoordinatorError
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.apis.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.headers import decode_response, encode_request_parts
from tidelog.protocol.registry import messages_of
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition

R = TypeVar("R", bound=Message)

RESPONSE_BYTES_MAX = 256 * 1024 * 1024

COORDINATOR_GROUP = 0
COORDINATOR_TRANSACTION = 1

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
            raise ClientError(f"{self.address} does not serve {api_key.name}")
        newest = min(served[1], known.MAX_VERSION)
        if version_max is not None:
            newest = min(newest, version_max)
        if newest < max(served[0], known.MIN_VERSION):
            raise ClientError(
                f"{self.address} serves {api_key.name} {served[0]}-{served[1]}, "
                f"this client knows {known.MIN_VERSION}-{known.MAX_VERSION}"
            )
        return newest

    def call(self, request: Message, answer: type[R], *, version_max: int | None = None) -> R:
        """Send a request and wait for its answer; nothing else may be in flight."""
        assert not self._pending
        self.send(request, version_max=version_max)
        return self.receive(answer)

    def send(self, request: Message, *, version_max: int | None = None) -> None:
        """Send a request; `receive` gives its answer when those sent before it were received."""
        api_key = ApiKey(type(request).API_KEY)
        self._send(api_key, self.version(api_key, version_max), request)

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

    def _send(self, api_key: ApiKey, version: int, request: Message) -> None:
        self._correlation_id += 1
        parts = encode_request_parts(
            api_key, version, self._correlation_id, self._client_id, request
        )
        try:
            self._send_parts(parts)
        except OSError as error:
            raise ConnectError(f"{self.address} went away: {error}") from error
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


class Cluster:
    """The brokers behind a bootstrap address, with one connection to each that is asked.

    A connection that failed is given to `drop`; the next call that needs its broker connects anew.
    """

    def __init__(
        self, bootstrap: str, *, client_id: str = "tidelog", timeout_s: float = 10.0
    ) -> None:
        self.client_id = client_id
        self.timeout_s = timeout_s
        self._addresses = [_parse_address(each) for each in bootstrap.split(",")]
        self._connections: dict[tuple[str, int], WireConnection] = {}
        # Questions that any broker answers have a connection of their own, so that requests in
        # flight on the others never stand before them.
        self._control: WireConnection | None = None
        self._any()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        if self._control is not None:
            self._control.close()
            self._control = None

    def drop(self, connection: WireConnection) -> None:
        """Close a connection that failed and forget it."""
        connection.close()
        if connection is self._control:
            self._control = None
        for address, each in list(self._connections.items()):
            if each is connection:
                del self._connections[address]

    def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Brokers, and the given topics or all."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        return self.ask_any(request, MetadataResponse)

    def ask_any(self, request: Message, answer: type[R]) -> R:
        """Ask whichever broker answers first: once more if a kept connection has gone."""
        connection = self._any()
        try:
            return connection.call(request, answer)
        except ConnectError:
            self.drop(connection)
        connection = self._any()
        try:
            return connection.call(request, answer)
        except ConnectError:
            self.drop(connection)
            raise

    def brokers(self) -> list[WireConnection]:
        """A connection to every broker."""
        return [self.connect(each.host, each.port) for each in self.metadata([]).brokers]

    def leaders(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[str, int]]:
        """The address of the leader of every partition of some topics that has one."""
        metadata = self.metadata(topics)
        addresses = {each.node_id: (each.host, each.port) for each in metadata.brokers}
        return {
            TopicPartition(topic.name or "", each.partition_index): addresses[each.leader_id]
            for topic in metadata.topics
            for each in topic.partitions
            if each.leader_id in addresses
        }

    def leader(self, topic: str, partition: int) -> WireConnection:
        """A connection to the leader of a partition."""
        address = self.leaders([topic]).get(TopicPartition(topic, partition))
        if address is None:
            raise ClientError(f"{topic}-{partition} does not exist or has no leader")
        return self.connect(*address)

    def transaction_coordinator(self, transactional_id: str) -> WireConnection:
        """A connection to the broker that coordinates a transactional id."""
        return self._coordinator(transactional_id, COORDINATOR_TRANSACTION)

    def group_coordinator(self, group_id: str) -> WireConnection:
        """A connection to the broker that coordinates a group."""
        return self._coordinator(group_id, COORDINATOR_GROUP)

    def connect(self, host: str, port: int) -> WireConnection:
        """The connection to a broker, made if there is none."""
        connection = self._connections.get((host, port))
        if connection is None:
            connection = self._open(host, port)
            self._connections[host, port] = connection
        return connection

    def _coordinator(self, key: str, kind: int) -> WireConnection:
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        answer = self.ask_any(request, FindCoordinatorResponse)
        host, port, error_code = answer.host, answer.port, answer.error_code
        if answer.coordinators:
            row = answer.coordinators[0]
            host, port, error_code = row.host, row.port, row.error_code
        if error_code:
            raise CoordinatorError(key, ErrorCode(error_code))
        return self.connect(host, port)

    def _any(self) -> WireConnection:
        if self._control is not None:
            return self._control
        failure: ConnectError | None = None
        known = [address for address in self._connections if address not in self._addresses]
        for host, port in [*self._addresses, *known]:
            try:
                self._control = self._open(host, port)
            except ConnectError as error:
                failure = error
            else:
                return self._control
        assert failure is not None
        raise failure

    def _open(self, host: str, port: int) -> WireConnection:
        return WireConnection.open(host, port, client_id=self.client_id, timeout_s=self.timeout_s)


def _parse_address(text: str) -> tuple[str, int]:
    host, separator, port = text.strip().rpartition(":")
    if not separator or not port.isdigit():
        raise ClientError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)
