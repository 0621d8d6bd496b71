"""The brokers behind a bootstrap address: which of them leads and coordinates what."""

from collections.abc import Iterable
from typing import TypeVar

from tidelog.client.cluster.connection import WireConnection
from tidelog.client.errors import ClientError, ConnectError, CoordinatorError
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
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition

R = TypeVar("R", bound=Message)

COORDINATOR_GROUP = 0
COORDINATOR_TRANSACTION = 1


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
