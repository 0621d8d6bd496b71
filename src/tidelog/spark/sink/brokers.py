"""The brokers as a writer meets them: calls that go on through restarts, moves and loading.

What was learned of a cluster (who coordinates what, where partitions are) is kept per process and
forgotten when a broker contradicts it.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from tidelog.client.cluster import COORDINATOR_GROUP, COORDINATOR_TRANSACTION, WireConnection
from tidelog.client.cluster import Address as WireAddress
from tidelog.client.errors import ConnectError
from tidelog.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.apis.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.connections import PooledCluster, lent_cluster
from tidelog.spark.errors import SparkError
from tidelog.spark.passing_errors import (
    BROKER_IN_TROUBLE,
    COORDINATOR_MOVES,
    REPLICAS_ARE_AWAY,
    TOPIC_IS_NEW,
)
from tidelog.spark.sink.options import SinkOptions

R = TypeVar("R", bound=Message)
Address = tuple[str, int]

GROUP = COORDINATOR_GROUP
TRANSACTION = COORDINATOR_TRANSACTION

# From this level of the feature transaction.version on, writing to a partition makes it part of
# the transaction, and each end of a transaction raises the producer's epoch.
TRANSACTIONS_V2 = 2
_TRANSACTION_FEATURE = "transaction.version"

# What is rolled back otherwise, if only later, is not worth waiting longer for.
_HURRY_S_MAX = 10.0
# New partitions of a topic are used after this long.
_TOPIC_AGE_S_MAX = 60.0
_REQUESTS_IN_FLIGHT_MAX = 100
_COORDINATORS_MAX = 10_000
_CREATE_TIMEOUT_MS = 10_000

_PASSING = (
    COORDINATOR_MOVES
    | BROKER_IN_TROUBLE
    | REPLICAS_ARE_AWAY
    # The transaction before this one is still being ended.
    | {ErrorCode.CONCURRENT_TRANSACTIONS}
)


class Patience:
    """How long to go on trying, and how long to wait between tries."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s
        self._pause_s = 0.002

    def wait(self, what: str, reason: object) -> None:
        """Sleep before the next try; SparkError if it would be too late."""
        now_s = time.monotonic()
        if now_s >= self._deadline_s:
            raise SparkError(f"{what}: no success within {self.timeout_s:g} s, at last: {reason}")
        time.sleep(min(self._pause_s, self._deadline_s - now_s))
        self._pause_s = min(self._pause_s * 2, 0.5)


@dataclass(slots=True)
class _Topic:
    leaders: list[Address | None]
    read_s: float


@dataclass(slots=True)
class _Knowledge:
    """What was heard of a cluster; nothing in it need still be true."""

    coordinators: dict[tuple[int, str], Address] = field(default_factory=dict)
    topics: dict[str, _Topic] = field(default_factory=dict)
    transaction_version: int | None = None


_knowledge: dict[str, _Knowledge] = {}


class _Passing(Exception):
    """What a broker said may be over at the next try."""


class Brokers:
    """The brokers of one cluster, for one writer at a time."""

    def __init__(self, pooled: PooledCluster, options: SinkOptions) -> None:
        self._cluster = pooled.cluster
        self._known = _knowledge.setdefault(options.bootstrap, _Knowledge())
        self.timeout_s = options.delivery_timeout_ms / 1000
        self._max_block_s = options.max_block_ms / 1000

    def hurry(self) -> None:
        """From now on, brokers that are away are not waited for long."""
        self.timeout_s = min(self.timeout_s, _HURRY_S_MAX)

    # Topics

    def partition_count(self, topic: str) -> int:
        """The number of a topic's partitions. The broker may make the topic for being asked."""
        known = self._known.topics.get(topic)
        if known is None or time.monotonic() - known.read_s > _TOPIC_AGE_S_MAX:
            self.refresh_topics([topic])
            known = self._known.topics[topic]
        return len(known.leaders)

    def leader(self, partition: TopicPartition) -> Address | None:
        """Where a partition is written to; None if that is not known."""
        known = self._known.topics.get(partition.topic)
        if known is None or partition.partition >= len(known.leaders):
            return None
        return known.leaders[partition.partition]

    def refresh_topics(self, topics: Iterable[str], timeout_s: float | None = None) -> None:
        """Ask anew where the partitions of these topics are."""
        patience = Patience(self._max_block_s if timeout_s is None else timeout_s)
        waiting = set(topics)
        while waiting:
            try:
                waiting = self._ask_topics(waiting)
                reason: object = "the topic is unknown"
            except ConnectError as error:
                reason = error
            if waiting:
                patience.wait(f"no partitions of {', '.join(sorted(waiting))}", reason)

    def _ask_topics(self, topics: set[str]) -> set[str]:
        """Returns the topics that are not there yet."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in sorted(topics)],
            allow_auto_topic_creation=True,
        )
        answer = self._cluster.ask_any(request, MetadataResponse)
        addresses = {each.node_id: (each.host, each.port) for each in answer.brokers}
        missing = set(topics)
        for topic in answer.topics:
            code = ErrorCode(topic.error_code)
            if code and code not in TOPIC_IS_NEW:
                raise SparkError(f"the topic {topic.name!r} cannot be written to: {code.name}")
            if code or not topic.partitions:
                continue
            leaders: list[Address | None] = [None] * len(topic.partitions)
            for row in topic.partitions:
                leaders[row.partition_index] = addresses.get(row.leader_id)
            self._known.topics[topic.name or ""] = _Topic(leaders, time.monotonic())
            missing.discard(topic.name or "")
        return missing

    def create_compacted_topic(self, name: str) -> None:
        """Make a topic of one partition if it is not there."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=1,
                    replication_factor=-1,
                    configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
                )
            ],
            timeout_ms=_CREATE_TIMEOUT_MS,
        )
        row = self.ask_any(
            request, CreateTopicsResponse, lambda response: response.topics[0].error_code
        ).topics[0]
        code = ErrorCode(row.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise SparkError(
                f"the topic {name} cannot be made: {code.name} {row.error_message or ''}".rstrip()
            )

    # Connections

    def connect(self, address: Address) -> WireConnection:
        """The connection to a broker; ConnectError if it does not answer."""
        return self._cluster.connect(WireAddress(*address))

    def drop(self, connection: WireConnection) -> None:
        """Forget a connection that failed, or whose answers nobody wants any more."""
        self._cluster.drop(connection)

    def transaction_version(self) -> int:
        """The level of the feature transaction.version; 0 on brokers that do not have it."""
        if self._known.transaction_version is None:
            request = ApiVersionsRequest(
                client_software_name="tidelog", client_software_version="0"
            )
            answer = self.ask_any(
                request, ApiVersionsResponse, lambda response: response.error_code
            )
            levels = {each.name: each.max_version_level for each in answer.finalized_features}
            self._known.transaction_version = levels.get(_TRANSACTION_FEATURE, 0)
        return self._known.transaction_version

    def ask_any(self, request: Message, answer: type[R], code_of: Callable[[R], int]) -> R:
        """The answer of any broker, asked until one knows."""
        patience = Patience(self.timeout_s)
        while True:
            try:
                response = self._cluster.ask_any(request, answer)
            except ConnectError as error:
                patience.wait("no broker", error)
                continue
            code = ErrorCode(code_of(response))
            if code not in _PASSING:
                return response
            patience.wait(type(request).__name__, code.name)

    # Coordinators

    def ask_coordinator(
        self,
        kind: int,
        key: str,
        request: Message,
        answer: type[R],
        code_of: Callable[[R], int],
        *,
        version_max: int | None = None,
    ) -> R:
        """The answer of the coordinator of one group or transactional id."""
        return self.ask_coordinators(
            kind, {key: request}, answer, code_of, version_max=version_max
        )[key]

    def ask_coordinators(
        self,
        kind: int,
        requests: Mapping[str, Message],
        answer: type[R],
        code_of: Callable[[R], int],
        *,
        version_max: int | None = None,
    ) -> dict[str, R]:
        """The answers of the coordinators of many, all asked at once.

        Goes on while coordinators move or load, transactions complete or brokers are away; an
        answer whose code says anything else is the caller's to judge.
        """
        waiting = dict(requests)
        answers: dict[str, R] = {}
        patience = Patience(self.timeout_s)
        while waiting:
            reason: object = None
            try:
                addresses = self._find_coordinators(kind, list(waiting))
            except (ConnectError, _Passing) as error:
                patience.wait(f"no coordinator of {next(iter(waiting))}", error)
                continue
            for address, keys in _by_address(addresses):
                try:
                    for key, response in self._exchange(
                        address, {key: waiting[key] for key in keys}, answer, version_max
                    ):
                        code = ErrorCode(code_of(response))
                        if code in _PASSING:
                            reason = code.name
                            if code in COORDINATOR_MOVES:
                                self._known.coordinators.pop((kind, key), None)
                            continue
                        answers[key] = response
                        del waiting[key]
                except ConnectError as error:
                    reason = error
                    for key in keys:
                        self._known.coordinators.pop((kind, key), None)
            if waiting:
                patience.wait(f"the coordinator of {next(iter(waiting))}", reason)
        return answers

    def _exchange(
        self,
        address: Address,
        requests: Mapping[str, Message],
        answer: type[R],
        version_max: int | None,
    ) -> Iterator[tuple[str, R]]:
        connection = self.connect(address)
        assert not connection.in_flight
        keys = list(requests)
        try:
            for at in range(0, len(keys), _REQUESTS_IN_FLIGHT_MAX):
                some = keys[at : at + _REQUESTS_IN_FLIGHT_MAX]
                for key in some:
                    connection.send(requests[key], version_max=version_max)
                for key in some:
                    yield key, connection.receive(answer)
        except BaseException:
            self.drop(connection)
            raise

    def _find_coordinators(self, kind: int, keys: Sequence[str]) -> dict[str, Address]:
        known = self._known.coordinators
        unknown = [key for key in keys if (kind, key) not in known]
        if len(known) > _COORDINATORS_MAX:
            # Every job has ids of its own.
            known.clear()
            unknown = list(keys)
        while unknown:
            request = FindCoordinatorRequest(
                key=unknown[0], key_type=kind, coordinator_keys=unknown
            )
            answer = self._cluster.ask_any(request, FindCoordinatorResponse)
            # Old versions answer about one key, at the top level.
            rows = answer.coordinators or [
                Coordinator(
                    key=unknown[0],
                    host=answer.host,
                    port=answer.port,
                    error_code=answer.error_code,
                )
            ]
            for row in rows:
                code = ErrorCode(row.error_code)
                if code in _PASSING:
                    raise _Passing(code.name)
                if code:
                    raise SparkError(f"no coordinator of {row.key}: {code.name}")
                known[kind, row.key] = (row.host, row.port)
            unknown = [key for key in unknown if (kind, key) not in known]
        return {key: known[kind, key] for key in keys}


@contextmanager
def lent_brokers(options: SinkOptions, *, in_a_hurry: bool = False) -> Iterator[Brokers]:
    """The brokers for the time of the `with` block, waited for if they are away."""
    timeout_s = options.delivery_timeout_ms / 1000
    patience = Patience(min(timeout_s, _HURRY_S_MAX) if in_a_hurry else timeout_s)
    while True:
        lent = lent_cluster(options.bootstrap, options.client_id, options.request_timeout_ms / 1000)
        try:
            pooled = lent.__enter__()
        except ConnectError as error:
            patience.wait("no broker", error)
            continue
        break
    brokers = Brokers(pooled, options)
    if in_a_hurry:
        brokers.hurry()
    try:
        yield brokers
    except BaseException as error:
        lent.__exit__(type(error), error, error.__traceback__)
        raise
    lent.__exit__(None, None, None)


def _by_address(addresses: Mapping[str, Address]) -> list[tuple[Address, list[str]]]:
    keys: dict[Address, list[str]] = {}
    for key, address in addresses.items():
        keys.setdefault(address, []).append(key)
    return list(keys.items())
