"""A plain blocking connection to a Kafka broker, for the calls that librdkafka does not offer.

One request at a time; versions are the newest that both sides know. `Cluster` finds the broker
that a call must go to.
"""

import socket
import struct
from types import TracebackType
from typing import TypeVar

from tidelog.client.errors import ClientError, ConnectError
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
from tidelog.protocol.headers import decode_response, encode_request
from tidelog.protocol.registry import messages_of
from tidelog.protocol.schema import Message

R = TypeVar("R", bound=Message)

RESPONSE_BYTES_MAX = 256 * 1024 * 1024

_API_VERSIONS_VERSION = 3
_LENGTH = struct.Struct(">i")


class WireConnection:
    """One TCP connection. Not safe to share between threads."""

    def __init__(self, host: str, port: int, *, client_id: str, timeout_s: float = 10.0) -> None:
        self.address = f"{host}:{port}"
        self._client_id = client_id
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise ConnectError(f"no broker answers at {self.address}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._versions = self._negotiate()
        except ClientError:
            self._socket.close()
            raise

    def __enter__(self) -> "WireConnection":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def call(self, request: Message, answer: type[R], *, version_max: int | None = None) -> R:
        """Send a request and wait for its answer."""
        api_key = ApiKey(answer.API_KEY)
        version = self._version(api_key, version_max)
        response = self._exchange(api_key, version, request)
        assert isinstance(response, answer)
        return response

    def close(self) -> None:
        self._socket.close()

    def _version(self, api_key: ApiKey, version_max: int | None) -> int:
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

    def _negotiate(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="tidelog", client_software_version="0")
        answer = self._exchange(ApiKey.API_VERSIONS, _API_VERSIONS_VERSION, request)
        assert isinstance(answer, ApiVersionsResponse)
        if answer.error_code:
            raise ClientError(f"{self.address}: {ErrorCode(answer.error_code).name}")
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def _exchange(self, api_key: ApiKey, version: int, request: Message) -> Message:
        self._correlation_id += 1
        frame = encode_request(api_key, version, self._correlation_id, self._client_id, request)
        try:
            self._socket.sendall(frame)
            (length,) = _LENGTH.unpack(self._receive(4))
            if not 0 <= length <= RESPONSE_BYTES_MAX:
                raise ClientError(f"{self.address} answered with a frame of {length} bytes")
            correlation_id, response = decode_response(api_key, version, self._receive(length))
        except OSError as error:
            raise ConnectError(f"{self.address} went away: {error}") from error
        if correlation_id != self._correlation_id:
            raise ClientError(f"{self.address} answered another request ({correlation_id})")
        return response

    def _receive(self, size: int) -> bytes:
        chunks = []
        while size:
            chunk = self._socket.recv(min(size, 1 << 20))
            if not chunk:
                raise ConnectError(f"{self.address} closed the connection")
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)


class Cluster:
    """The brokers behind a bootstrap address, with one connection to each that is asked."""

    def __init__(
        self, bootstrap: str, *, client_id: str = "tidelog", timeout_s: float = 10.0
    ) -> None:
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connections: dict[tuple[str, int], WireConnection] = {}
        self._bootstrap = self._first_reachable(bootstrap)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def metadata(self, topics: list[str] | None = None) -> MetadataResponse:
        """Brokers, and the given topics or all."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        return self._bootstrap.call(request, MetadataResponse)

    def brokers(self) -> list[WireConnection]:
        """A connection to every broker."""
        return [self._connect(each.host, each.port) for each in self.metadata([]).brokers]

    def leader(self, topic: str, partition: int) -> WireConnection:
        """A connection to the leader of a partition."""
        metadata = self.metadata([topic])
        for found in metadata.topics:
            for each in found.partitions:
                if each.partition_index == partition:
                    for broker in metadata.brokers:
                        if broker.node_id == each.leader_id:
                            return self._connect(broker.host, broker.port)
        raise ClientError(f"{topic}-{partition} does not exist or has no leader")

    def transaction_coordinator(self, transactional_id: str) -> WireConnection:
        """A connection to the broker that coordinates a transactional id."""
        request = FindCoordinatorRequest(
            key=transactional_id, key_type=1, coordinator_keys=[transactional_id]
        )
        answer = self._bootstrap.call(request, FindCoordinatorResponse)
        host, port, error_code = answer.host, answer.port, answer.error_code
        if answer.coordinators:
            row = answer.coordinators[0]
            host, port, error_code = row.host, row.port, row.error_code
        if error_code:
            raise ClientError(
                f"no coordinator for {transactional_id}: {ErrorCode(error_code).name}"
            )
        return self._connect(host, port)

    def _first_reachable(self, bootstrap: str) -> WireConnection:
        failure: ConnectError | None = None
        for address in bootstrap.split(","):
            host, separator, port = address.strip().rpartition(":")
            if not separator or not port.isdigit():
                raise ClientError(f"{address!r} is not HOST:PORT")
            try:
                return self._connect(host.strip("[]"), int(port))
            except ConnectError as error:
                failure = error
        assert failure is not None
        raise failure

    def _connect(self, host: str, port: int) -> WireConnection:
        connection = self._connections.get((host, port))
        if connection is None:
            connection = WireConnection(
                host, port, client_id=self._client_id, timeout_s=self._timeout_s
            )
            self._connections[host, port] = connection
        return connection
