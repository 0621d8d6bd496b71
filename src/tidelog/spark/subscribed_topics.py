"""What the driver asks brokers: which partitions there are, and their offsets.

Each question is asked again while the broker is away or a leader moves, until `api_timeout_s` is
over. Requests to all leaders are in flight together, so offsets of any number of partitions take
one round trip after the one for metadata.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidelog.client.cluster import Cluster, WireConnection
from tidelog.client.errors import ConnectError
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.connections import lent_cluster
from tidelog.spark.errors import OptionError, SparkError
from tidelog.spark.offsets import EARLIEST, LATEST, Offsets
from tidelog.spark.options import SourceOptions
from tidelog.spark.passing_errors import BROKER_IN_TROUBLE, LEADER_MOVES

T = TypeVar("T")

_BACKOFF_S_MIN = 0.01
_BACKOFF_S_MAX = 0.5

_PASSING = LEADER_MOVES | BROKER_IN_TROUBLE

_Address = tuple[str, int]


class _PassingError(Exception):
    """Something that is over soon, as a rule."""


@dataclass(frozen=True, slots=True)
class _Topics:
    """The partitions that a subscription chooses, by their leaders, and what it does not find."""

    leaders: dict[TopicPartition, _Address | None]
    ids: dict[str, bytes]
    absent: frozenset[str]


class SubscribedTopics:
    """Questions with the settings of one query. Connections are the process's, not its own."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._believed: tuple[float, _Topics] | None = None
        self.topic_ids: dict[str, bytes] = {}
        """The ids of the chosen topics, as of the last answer."""

    def partitions(self) -> set[TopicPartition]:
        """The partitions to read; OptionError names topics and partitions that there are not."""
        options = self._options
        for _ in range(1 + options.offset_retries):
            topics = self._until_answered(self._topics)
            if not topics.absent:
                return set(topics.leaders)
            self._believed = None
            time.sleep(options.offset_retry_interval_s)
        raise OptionError(
            f"option {options.subscription.option}: there is no {', '.join(sorted(topics.absent))} "
            f"at {options.bootstrap}"
        )

    def latest(self) -> Offsets:
        """The ends of all chosen partitions that exist; of read_committed the stable ones."""

        def ask(cluster: Cluster) -> Offsets:
            leaders = self._topics(cluster).leaders
            return self._list_offsets(cluster, leaders, [dict.fromkeys(leaders, LATEST)])[0]

        return self._until_answered(ask)

    def earliest(self, names: Iterable[TopicPartition]) -> Offsets:
        """The first offsets of some partitions; those that are gone are left out."""
        return self.list_offsets(dict.fromkeys(names, EARLIEST))[0]

    def ends(self, at_least: Mapping[TopicPartition, int]) -> Offsets:
        """The ends of partitions, whatever of them is committed.

        Asked again while they are below what is expected: a broker that has just started may not
        know all yet.
        """

        def ask(cluster: Cluster) -> Offsets:
            leaders = self._topics(cluster).leaders
            asked = [dict.fromkeys(at_least, LATEST)]
            return self._list_offsets(cluster, leaders, asked, read_committed=False)[0]

        found = self._until_answered(ask)
        for _ in range(self._options.offset_retries):
            if all(found.get(name, end) >= end for name, end in at_least.items()):
                break
            time.sleep(self._options.offset_retry_interval_s)
            found = self._until_answered(ask)
        return found

    def list_offsets(self, *asked: Mapping[TopicPartition, int]) -> list[Offsets]:
        """For each mapping from partitions to timestamps the first offsets not older, or -1.

        EARLIEST and LATEST can stand for a timestamp. Partitions that are gone are left out.
        """

        def ask(cluster: Cluster) -> list[Offsets]:
            return self._list_offsets(cluster, self._topics(cluster).leaders, asked)

        return self._until_answered(ask) if any(asked) else [{} for _ in asked]

    def _until_answered(self, ask: Callable[[Cluster], T]) -> T:
        options = self._options
        deadline_s = time.monotonic() + options.api_timeout_s
        # A broker that is away may be so for long, even if offsets are to be asked for at once.
        backoff_s = max(options.offset_retry_interval_s, _BACKOFF_S_MIN)
        while True:
            try:
                with lent_cluster(
                    options.bootstrap, options.client_id, options.request_timeout_s
                ) as pooled:
                    return ask(pooled.cluster)
            except (ConnectError, _PassingError) as error:
                self._believed = None
                if time.monotonic() + backoff_s > deadline_s:
                    raise SparkError(
                        f"no offsets from {options.bootstrap} within {options.api_timeout_s:g} s "
                        f"(kafka.default.api.timeout.ms): {error}"
                    ) from error
            time.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_S_MAX)

    def _topics(self, cluster: Cluster) -> _Topics:
        now_s = time.monotonic()
        if self._believed is not None and now_s < self._believed[0]:
            return self._believed[1]
        topics = self._ask_topics(cluster)
        self.topic_ids = topics.ids
        self._believed = (now_s + self._options.metadata_ttl_s, topics)
        return topics

    def _ask_topics(self, cluster: Cluster) -> _Topics:
        subscription = self._options.subscription
        metadata = cluster.metadata(subscription.topics)
        brokers = {each.node_id: (each.host, each.port) for each in metadata.brokers}
        found: dict[TopicPartition, _Address | None] = {}
        ids: dict[str, bytes] = {}
        absent = set()
        for topic in metadata.topics:
            name = topic.name or ""
            if subscription.pattern is not None and topic.is_internal:
                continue
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                absent.add(name)
            elif topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise OptionError(f"option {subscription.option}: {name!r} is no name of a topic")
            elif topic.error_code and topic.error_code not in _PASSING:
                raise SparkError(f"topic {name}: {ErrorCode(topic.error_code).name}")
            elif topic.error_code:
                raise _PassingError(f"topic {name}: {ErrorCode(topic.error_code).name}")
            if not topic.error_code and subscription.chooses_topic(name):
                ids[name] = topic.topic_id
            for row in topic.partitions:
                found[TopicPartition(name, row.partition_index)] = brokers.get(row.leader_id)
        chosen = subscription.chosen(found)
        if subscription.partitions is not None:
            absent = {str(name) for name in subscription.partitions - chosen}
        return _Topics({name: found[name] for name in chosen}, ids, frozenset(absent))

    def _list_offsets(
        self,
        cluster: Cluster,
        leaders: Mapping[TopicPartition, _Address | None],
        asked: Sequence[Mapping[TopicPartition, int]],
        *,
        read_committed: bool | None = None,
    ) -> list[Offsets]:
        """All requests are sent before the first answer is read."""
        is_committed = self._options.read_committed if read_committed is None else read_committed
        sent: list[tuple[int, WireConnection]] = []
        for at, mapping in enumerate(asked):
            by_leader: dict[_Address, dict[TopicPartition, int]] = {}
            for name, timestamp_ms in mapping.items():
                if name not in leaders:
                    continue
                leader = leaders[name]
                if leader is None:
                    raise _PassingError(f"{name} has no leader")
                by_leader.setdefault(leader, {})[name] = timestamp_ms
            for leader, part in by_leader.items():
                connection = cluster.connect(*leader)
                connection.send(_request(part, is_committed))
                sent.append((at, connection))
        found: list[Offsets] = [{} for _ in asked]
        for at, connection in sent:
            for topic in connection.receive(ListOffsetsResponse).topics:
                for row in topic.partitions:
                    name = TopicPartition(topic.name, row.partition_index)
                    if row.error_code in _PASSING:
                        raise _PassingError(f"{name}: {ErrorCode(row.error_code).name}")
                    if row.error_code:
                        raise SparkError(f"{name}: {ErrorCode(row.error_code).name}")
                    found[at][name] = row.offset
        return found


def _request(asked: Mapping[TopicPartition, int], is_committed: bool) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for name, timestamp_ms in asked.items():
        row = ListOffsetsPartition(partition_index=name.partition, timestamp=timestamp_ms)
        topics.setdefault(name.topic, []).append(row)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if is_committed else 0,
        topics=[ListOffsetsTopic(name=each, partitions=rows) for each, rows in topics.items()],
    )
