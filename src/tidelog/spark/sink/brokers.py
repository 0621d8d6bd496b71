"""The brokers as a writer meets them: calls that go on through restarts, moves and loading."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from tidelog.client.cluster import (
    COORDINATOR_GROUP,
    COORDINATOR_TRANSACTION,
    Address,
    ClusterClient,
    Retries,
    Stale,
    WireConnection,
    is_retriable,
    retrying,
)
from tidelog.client.errors import BrokerError, RetriableError, RetriesExhausted
from tidelog.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.connections import PooledCluster, lent_cluster
from tidelog.spark.errors import SparkError
from tidelog.spark.sink.options import SinkOptions

R = TypeVar("R", bound=Message)

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
_CREATE_TIMEOUT_MS = 10_000


class Brokers:
    """The brokers of one cluster, for one writer at a time."""

    def __init__(self, pooled: PooledCluster, options: SinkOptions) -> None:
        self._cluster = pooled.cluster
        self._view = pooled.cluster.view
        self._max_block_s = options.max_block_ms / 1000
        self._client = ClusterClient(pooled.cluster, options.delivery_timeout_ms / 1000)

    def hurry(self) -> None:
        """From now on, brokers that are away are not waited for long."""
        self._client.timeout_s = min(self._client.timeout_s, _HURRY_S_MAX)

    def retries(self) -> Retries:
        """Tries until the deadline of a call."""
        return Retries(self._client.timeout_s)

    # Topics

    def partition_count(self, topic: str) -> int:
        """The number of a topic's partitions. The broker may make the topic for being asked."""
        known = self._view.topics.get(topic)
        if known is not None and time.monotonic() - known.read_s <= _TOPIC_AGE_S_MAX:
            return known.partition_count
        return self.refresh_topics([topic])[topic]

    def leader(self, partition: TopicPartition) -> Address | None:
        """Where a partition is written to; None if that is not known."""
        leader = self._view.leaders.get(partition)
        return None if leader is None else leader.address

    def invalidate_leader(self, partition: TopicPartition, code: ErrorCode) -> None:
        """Forget who leads a partition if an error shows that to be out of date."""
        self._view.invalidate_leader(partition, code)

    def refresh_topics(
        self, topics: Iterable[str], timeout_s: float | None = None
    ) -> dict[str, int]:
        """Ask where the partitions of these topics are now, and how many."""
        names = sorted(topics)
        return retrying(
            lambda: self._ask_topics(names),
            f"no partitions of {', '.join(names)}",
            Retries(self._max_block_s if timeout_s is None else timeout_s),
        )

    def _ask_topics(self, names: list[str]) -> dict[str, int]:
        answer = self._cluster.metadata(names, allow_auto_topic_creation=True)
        for topic in answer.topics:
            code = ErrorCode(topic.error_code)
            if not code and not topic.partitions:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            if is_retriable(code, Stale.METADATA):
                raise RetriableError(code, topic.name or "")
            if code:
                raise SparkError(f"the topic {topic.name!r} cannot be written to: {code.name}")
        return {topic.name or "": len(topic.partitions) for topic in answer.topics}

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
        return self._cluster.connect(address)

    def drop(self, connection: WireConnection) -> None:
        """Close a connection whose answers nobody wants any more."""
        self._cluster.drop(connection)

    def lose(self, address: Address) -> None:
        """Forget what a broker led: it cannot be reached."""
        self._view.invalidate_broker(address)

    # Calls

    def transaction_version(self) -> int:
        """The level of the feature transaction.version; 0 on brokers that do not have it."""
        if self._view.features is None:
            request = ApiVersionsRequest(
                client_software_name="tidelog", client_software_version="0"
            )
            answer = self.ask_any(
                request, ApiVersionsResponse, lambda response: response.error_code
            )
            self._view.features = {
                each.name: each.max_version_level for each in answer.finalized_features
            }
        return self._view.features.get(_TRANSACTION_FEATURE, 0)

    def ask_any(self, request: Message, answer: type[R], code_of: Callable[[R], int]) -> R:
        """The answer of any broker."""
        return self._client.ask_any(request, answer, code_of)

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
        return self._client.ask_coordinator(
            kind, key, request, answer, code_of, version_max=version_max
        )

    def ask_coordinators(
        self,
        kind: int,
        requests: Mapping[str, Message],
        answer: type[R],
        code_of: Callable[[R], int],
        *,
        version_max: int | None = None,
    ) -> dict[str, R]:
        """The answers of the coordinators of many, all asked at once."""
        return self._client.ask_coordinators(
            kind, requests, answer, code_of, version_max=version_max
        )


@contextmanager
def lent_brokers(options: SinkOptions, *, in_a_hurry: bool = False) -> Iterator[Brokers]:
    """The brokers for the time of the `with` block.

    What they refuse, and what takes them too long, is a SparkError.
    """
    try:
        with lent_cluster(
            options.bootstrap, options.client_id, options.request_timeout_ms / 1000
        ) as pooled:
            brokers = Brokers(pooled, options)
            if in_a_hurry:
                brokers.hurry()
            yield brokers
    except (BrokerError, RetriesExhausted) as error:
        raise SparkError(str(error)) from error
