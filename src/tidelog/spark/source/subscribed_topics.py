"""The topics that a query subscribes to: which partitions there are, and their offsets.

Each question is asked again while the broker is away or a leader moves, until `api_timeout_s` is
over. Requests to all leaders are in flight together, so offsets of any number of partitions take
one round trip after the one for metadata.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tidelog.client.cluster import (
    RETRY_BACKOFF,
    Cluster,
    Retries,
    Stale,
    is_retriable,
    list_offsets,
    retrying,
)
from tidelog.client.errors import BrokerError, RetriableError, RetriesExhausted
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.connections import lent_cluster
from tidelog.spark.errors import OptionError, SparkError
from tidelog.spark.offsets import EARLIEST, LATEST, Offsets
from tidelog.spark.source.options import SourceOptions

T = TypeVar("T")

# A broker that is away may be so for long, even if offsets are to be asked for at once.
_PAUSE_S_MIN = 0.01


@dataclass(frozen=True, slots=True)
class _Topics:
    """The partitions that a subscription chooses, and what it does not find."""

    partitions: frozenset[TopicPartition]
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
                return set(topics.partitions)
            self._believed = None
            time.sleep(options.offset_retry_interval_s)
        raise OptionError(
            f"option {options.subscription.option}: there is no {', '.join(sorted(topics.absent))} "
            f"at {options.bootstrap}"
        )

    def latest(self) -> Offsets:
        """The ends of all chosen partitions that exist; of read_committed the stable ones."""

        def ask(cluster: Cluster, retries: Retries) -> Offsets:
            names = self._topics(cluster, retries).partitions
            return self._list_offsets(cluster, retries, [dict.fromkeys(names, LATEST)])[0]

        return self._until_answered(ask)

    def earliest(self, names: Iterable[TopicPartition]) -> Offsets:
        """The first offsets of some partitions; those that are gone are left out."""
        return self.list_offsets(dict.fromkeys(names, EARLIEST))[0]

    def ends(self, at_least: Mapping[TopicPartition, int]) -> Offsets:
        """The ends of partitions, whatever of them is committed.

        Asked again while they are below what is expected: a broker that has just started may not
        know all yet.
        """

        def ask(cluster: Cluster, retries: Retries) -> Offsets:
            asked = [dict.fromkeys(at_least, LATEST)]
            return self._list_offsets(cluster, retries, asked, read_committed=False)[0]

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

        def ask(cluster: Cluster, retries: Retries) -> list[Offsets]:
            return self._list_offsets(cluster, retries, asked)

        return self._until_answered(ask) if any(asked) else [{} for _ in asked]

    def _until_answered(self, ask: Callable[[Cluster, Retries], T]) -> T:
        options = self._options
        pause_s = max(options.offset_retry_interval_s, _PAUSE_S_MIN)
        backoff = replace(
            RETRY_BACKOFF, first_s=pause_s, longest_s=max(pause_s, RETRY_BACKOFF.longest_s)
        )
        retries = Retries(options.api_timeout_s, backoff=backoff)
        try:
            with lent_cluster(
                options.bootstrap, options.client_id, options.request_timeout_s
            ) as pooled:
                return ask(pooled.cluster, retries)
        except RetriesExhausted as error:
            self._believed = None
            raise SparkError(
                f"no offsets from {options.bootstrap} within {options.api_timeout_s:g} s "
                f"(kafka.default.api.timeout.ms): {error}"
            ) from error
        except BrokerError as error:
            raise SparkError(str(error)) from error

    def _topics(self, cluster: Cluster, retries: Retries) -> _Topics:
        now_s = time.monotonic()
        if self._believed is not None and now_s < self._believed[0]:
            return self._believed[1]
        topics = retrying(lambda: self._ask_topics(cluster), "metadata", retries)
        self.topic_ids = topics.ids
        self._believed = (now_s + self._options.metadata_ttl_s, topics)
        return topics

    def _ask_topics(self, cluster: Cluster) -> _Topics:
        subscription = self._options.subscription
        found: set[TopicPartition] = set()
        ids: dict[str, bytes] = {}
        absent = set()
        for topic in cluster.metadata(subscription.topics).topics:
            name = topic.name or ""
            if subscription.pattern is not None and topic.is_internal:
                continue
            code = ErrorCode(topic.error_code)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                absent.add(name)
            elif code is ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise OptionError(f"option {subscription.option}: {name!r} is no name of a topic")
            elif is_retriable(code, Stale.METADATA):
                raise RetriableError(code, f"topic {name}")
            elif code:
                raise BrokerError(code, f"topic {name}")
            elif subscription.chooses_topic(name):
                ids[name] = topic.topic_id
            found |= {TopicPartition(name, row.partition_index) for row in topic.partitions}
        chosen = subscription.chosen(found)
        if subscription.partitions is not None:
            absent = {str(name) for name in subscription.partitions - chosen}
        return _Topics(frozenset(chosen), ids, frozenset(absent))

    def _list_offsets(
        self,
        cluster: Cluster,
        retries: Retries,
        asked: Sequence[Mapping[TopicPartition, int]],
        *,
        read_committed: bool | None = None,
    ) -> list[Offsets]:
        """Of the partitions that are subscribed to."""
        is_committed = self._options.read_committed if read_committed is None else read_committed
        names = self._topics(cluster, retries).partitions
        chosen = [
            {name: timestamp_ms for name, timestamp_ms in each.items() if name in names}
            for each in asked
        ]
        return list_offsets(cluster, chosen, read_committed=is_committed, retries=retries)
