"""The brokers behind a bootstrap address, and calls that find the right one.

Every call here is one attempt. What may pass by itself is a ConnectError or a RetriableError; then
what was relied on is invalidated, and the next attempt asks again who leads or coordinates.
`ClusterClient` makes attempts until a deadline.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from tidelog.client.cluster.connection import WireConnection
from tidelog.client.cluster.retrying import ANY_BROKER, Stale, is_retriable
from tidelog.client.cluster.view import Address, ClusterView, Coordinated, PartitionLeader
from tidelog.client.errors import (
    AnswerTimeout,
    BrokerError,
    ClientError,
    ConnectError,
    RetriableError,
)
from tidelog.protocol.apis.find_coordinator import (
    Coordinator,
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

_REQUESTS_IN_FLIGHT_MAX = 100


class Cluster:
    """The brokers of a cluster, with one connection to each that is asked.

    It connects when it is first asked something. A connection that failed is dropped; the next call
    that needs its broker connects again. Not safe to share between threads; its view is.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "tidelog",
        timeout_s: float = 10.0,
        view: ClusterView | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.view = ClusterView() if view is None else view
        self._bootstrap = [_parse_address(each) for each in bootstrap.split(",")]
        self._connections: dict[Address, WireConnection] = {}
        # Questions that any broker answers have a connection of their own, so that requests in
        # flight on the others never stand before them.
        self._control: tuple[Address, WireConnection] | None = None
        self._failed_s: dict[Address, float] = {}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        if self._control is not None:
            self._control[1].close()
            self._control = None

    def sibling(self) -> "Cluster":
        """The same cluster over connections of its own, for another thread or another purpose.

        They share the view.
        """
        return Cluster(
            self.bootstrap, client_id=self.client_id, timeout_s=self.timeout_s, view=self.view
        )

    # Connections

    def connect(self, address: Address) -> WireConnection:
        """The connection to a broker, made if there is none."""
        connection = self._connections.get(address)
        if connection is None:
            connection = self._open(address)
            self._connections[address] = connection
        return connection

    def drop(self, connection: WireConnection) -> None:
        """Close a connection that failed, or whose answers nobody wants any more."""
        connection.close()
        if self._control is not None and connection is self._control[1]:
            self._control = None
        for address, each in list(self._connections.items()):
            if each is connection:
                del self._connections[address]

    def brokers(self) -> list[WireConnection]:
        """A connection to every broker."""
        self.metadata([])
        return [self.connect(address) for address in self.view.brokers.values()]

    # Any broker

    def ask_any(
        self, request: Message, answer: type[R], code_of: Callable[[R], int] | None = None
    ) -> R:
        """Ask whichever broker answers: once more if a kept connection has gone.

        An answer is returned unless its code is retriable.
        """
        try:
            response = self._ask_control(request, answer)
        except AnswerTimeout:
            raise
        except ConnectError:
            response = self._ask_control(request, answer)
        if code_of is not None and is_retriable(code_of(response), ANY_BROKER):
            code = ErrorCode(code_of(response))
            if code is ErrorCode.NOT_CONTROLLER:
                self._ask_another_next()
            raise RetriableError(code, type(request).__name__)
        return response

    def metadata(
        self, topics: Iterable[str] | None = None, *, allow_auto_topic_creation: bool = False
    ) -> MetadataResponse:
        """Brokers, and the given topics or all; the view learns them."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=allow_auto_topic_creation)
        answer = self.ask_any(request, MetadataResponse)
        self.view.learn(answer)
        return answer

    def ask_all(
        self,
        addresses: Sequence[Address],
        request: Message,
        answer: type[R],
        code_of: Callable[[R], int],
    ) -> list[R]:
        """The answers of several brokers to the same request, unless a code is retriable."""
        answers: list[R] = []
        for address, response in zip(
            addresses,
            self.exchange([(address, request) for address in addresses], answer),
            strict=True,
        ):
            if isinstance(response, ConnectError):
                raise response
            if is_retriable(code_of(response), ANY_BROKER):
                raise RetriableError(ErrorCode(code_of(response)), str(address))
            answers.append(response)
        return answers

    # Leaders

    def leader(self, partition: TopicPartition, *, refresh: bool = False) -> PartitionLeader:
        """Who leads a partition, as it is known or, with `refresh`, as a broker tells now."""
        known = None if refresh else self.view.leaders.get(partition)
        if known is not None:
            return known
        (topic,) = self.metadata([partition.topic]).topics
        if is_retriable(topic.error_code, Stale.METADATA):
            raise RetriableError(ErrorCode(topic.error_code), str(partition))
        if topic.error_code:
            raise BrokerError(ErrorCode(topic.error_code), str(partition))
        if all(row.partition_index != partition.partition for row in topic.partitions):
            raise RetriableError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        known = self.view.leaders.get(partition)
        if known is None:
            raise RetriableError(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))
        return known

    def ask_leader(
        self,
        partition: TopicPartition,
        request: Message,
        answer: type[R],
        code_of: Callable[[R], int],
        *,
        version_max: int | None = None,
    ) -> R:
        """The answer of a partition's leader, unless its code is retriable."""
        address = self.leader(partition).address
        (response,) = self.exchange([(address, request)], answer, version_max=version_max)
        if isinstance(response, ConnectError):
            raise response
        code = code_of(response)
        if is_retriable(code, Stale.METADATA):
            self.view.invalidate_leader(partition, code)
            raise RetriableError(ErrorCode(code), str(partition))
        return response

    # Coordinators

    def coordinators(self, kind: int, keys: Sequence[str]) -> dict[str, Address]:
        """Who coordinates groups or transactional ids."""
        found: dict[str, Address] = {}
        for key in keys:
            known = self.view.coordinators.get(Coordinated(kind, key))
            if known is not None:
                found[key] = known
        unknown = [key for key in keys if key not in found]
        while unknown:
            request = FindCoordinatorRequest(
                key=unknown[0], key_type=kind, coordinator_keys=unknown
            )
            answer = self.ask_any(request, FindCoordinatorResponse)
            # Old versions answer about one key, at the top level.
            rows = answer.coordinators or [
                Coordinator(
                    key=unknown[0],
                    node_id=answer.node_id,
                    host=answer.host,
                    port=answer.port,
                    error_code=answer.error_code,
                )
            ]
            for row in rows:
                subject = f"the coordinator of {row.key}"
                if is_retriable(row.error_code, Stale.COORDINATOR):
                    raise RetriableError(ErrorCode(row.error_code), subject)
                if row.error_code:
                    raise BrokerError(ErrorCode(row.error_code), subject)
                found[row.key] = Address(row.host, row.port)
                self.view.brokers[row.node_id] = found[row.key]
                self.view.learn_coordinator(Coordinated(kind, row.key), found[row.key])
            unknown = [key for key in unknown if key not in found]
        return found

    def ask_coordinators(
        self,
        kind: int,
        requests: Mapping[str, Message],
        answer: type[R],
        code_of: Callable[[R], int],
        *,
        version_max: int | None = None,
    ) -> tuple[dict[str, R], dict[str, ConnectError | RetriableError]]:
        """The answers of the coordinators of many, all asked at once, and what is to be retried."""
        addresses = self.coordinators(kind, list(requests))
        responses = self.exchange(
            [(addresses[key], request) for key, request in requests.items()],
            answer,
            version_max=version_max,
        )
        answers: dict[str, R] = {}
        failed: dict[str, ConnectError | RetriableError] = {}
        for key, response in zip(requests, responses, strict=True):
            if isinstance(response, ConnectError):
                failed[key] = response
            elif is_retriable(code := code_of(response), Stale.COORDINATOR):
                self.view.invalidate_coordinator(Coordinated(kind, key), code)
                failed[key] = RetriableError(ErrorCode(code), f"the coordinator of {key}")
            else:
                answers[key] = response
        return answers, failed

    # Many at once

    def exchange(
        self,
        requests: Sequence[tuple[Address, Message]],
        answer: type[R],
        *,
        version_max: int | None = None,
    ) -> list[R | ConnectError]:
        """The answers to requests to several brokers, in the order of the requests.

        All are sent before the first answer is read, or at least many. A broker that cannot be
        reached is forgotten by the view.
        """
        exchange = _Exchange(self, requests, answer, version_max)
        while exchange.waiting:
            exchange.run_round()
        return [exchange.results[at] for at in range(len(requests))]

    def _ask_control(self, request: Message, answer: type[R]) -> R:
        address, connection = self._connect_any()
        try:
            return connection.call(request, answer)
        except ConnectError:
            self._failed_s[address] = time.monotonic()
            self.drop(connection)
            raise
        except BaseException:
            self.drop(connection)
            raise

    def _ask_another_next(self) -> None:
        """This broker knows of no controller, as when it is cut off; another may."""
        others = {*self._bootstrap, *self.view.brokers.values()}
        if self._control is not None and len(others) > 1:
            address, connection = self._control
            self._failed_s[address] = time.monotonic()
            self.drop(connection)

    def _connect_any(self) -> tuple[Address, WireConnection]:
        """Bootstrap addresses, then brokers that were heard of; those that failed come last."""
        if self._control is not None:
            return self._control
        candidates = dict.fromkeys([*self._bootstrap, *self.view.brokers.values()])
        failures: list[ConnectError] = []
        for address in sorted(candidates, key=lambda each: self._failed_s.get(each, 0.0)):
            try:
                self._control = (address, self._open(address))
            except ConnectError as error:
                failures.append(error)
            else:
                return self._control
        raise ConnectError("; ".join(map(str, failures)))

    def _open(self, address: Address) -> WireConnection:
        try:
            connection = WireConnection.open(
                *address, client_id=self.client_id, timeout_s=self.timeout_s
            )
        except ConnectError:
            self._failed_s[address] = time.monotonic()
            raise
        self._failed_s.pop(address, None)
        return connection


class _Exchange(Generic[R]):
    """Requests to several brokers, and their answers by the places of the requests."""

    def __init__(
        self,
        cluster: Cluster,
        requests: Sequence[tuple[Address, Message]],
        answer: type[R],
        version_max: int | None,
    ) -> None:
        self._cluster = cluster
        self._requests = requests
        self._answer = answer
        self._version_max = version_max
        self.results: dict[int, R | ConnectError] = {}
        self.waiting: dict[Address, list[int]] = {}
        """The places of the requests that have no result, by broker."""
        for at, (address, _) in enumerate(requests):
            self.waiting.setdefault(address, []).append(at)

    def run_round(self) -> None:
        """Send some requests to every broker, then receive the answers of all."""
        connections: dict[Address, WireConnection] = {}
        try:
            for address in list(self.waiting):
                self._attempt(self._send, address, connections)
            for address in list(connections):
                self._attempt(self._receive, address, connections)
        except BaseException:
            # What is still in flight would be taken for the answer of the next request.
            for connection in connections.values():
                self._cluster.drop(connection)
            raise

    def _attempt(
        self,
        step: Callable[[Address, dict[Address, WireConnection]], None],
        address: Address,
        connections: dict[Address, WireConnection],
    ) -> None:
        try:
            step(address, connections)
        except ConnectError as error:
            if address in connections:
                self._cluster.drop(connections.pop(address))
            self._cluster.view.invalidate_broker(address)
            self.results.update(dict.fromkeys(self.waiting.pop(address), error))

    def _send(self, address: Address, connections: dict[Address, WireConnection]) -> None:
        connection = self._cluster.connect(address)
        assert not connection.in_flight
        connections[address] = connection
        for at in self.waiting[address][:_REQUESTS_IN_FLIGHT_MAX]:
            connection.send(self._requests[at][1], version_max=self._version_max)

    def _receive(self, address: Address, connections: dict[Address, WireConnection]) -> None:
        places = self.waiting[address]
        while connections[address].in_flight:
            self.results[places[0]] = connections[address].receive(self._answer)
            places.pop(0)
        if not places:
            del self.waiting[address]


def _parse_address(text: str) -> Address:
    host, separator, port = text.strip().rpartition(":")
    if not separator or not port.isdigit():
        raise ClientError(f"{text!r} is not HOST:PORT")
    return Address(host.strip("[]"), int(port))
