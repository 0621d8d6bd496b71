"""The partitions that this node follows: one fetcher for each node that leads some of them.

Partitions go from one fetcher to another as their leaders change; a fetcher without partitions is
closed. A leader whose address is not known yet, or that does not answer, is tried again, and at
once when the metadata says where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.replication.replica_fetcher import Answered, FetcherOptions, ReplicaFetcher
from tidelog.protocol.apis.fetch import FetchRequest
from tidelog.protocol.fetch import TOPIC_IDS_FROM
from tidelog.server.network.peers import Purpose, UnknownNodeError

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import MetadataDelta, MetadataImage
    from tidelog.cluster.replication.partition import Partition
    from tidelog.protocol.schema import Message
    from tidelog.server.node import Node

_PartitionKey = tuple[bytes, int]


class FollowedPartitions:
    """`node.followed_partitions`. All of it belongs to the loop thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[_PartitionKey, int] = {}
        self._is_closed = False

    @property
    def fetchers(self) -> dict[int, ReplicaFetcher]:
        """By the node that they fetch from."""
        return self._fetchers

    def follow(self, partition: Partition) -> None:
        """A partition's leader or leader epoch is another one; nothing is fetched when it has no
        leader."""
        key = (partition.topic_id, partition.partition)
        leader = partition.leader
        known = self._leaders.get(key)
        if known is not None and known != leader:
            self.unfollow(partition)
        if leader < 0 or leader == self._node.config.node_id or self._is_closed:
            return
        self._leaders[key] = leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = self._make_fetcher(leader)
        fetcher.follow(partition)

    def unfollow(self, partition: Partition) -> None:
        """This node leads the partition, or has it no more; harmless when it did not follow."""
        leader = self._leaders.pop((partition.topic_id, partition.partition), None)
        if leader is not None:
            fetcher = self._fetchers[leader]
            fetcher.unfollow(partition)
            if not len(fetcher):
                fetcher.close()
                del self._fetchers[leader]

    def start_moved(self, partition: Partition) -> None:
        """Retention has moved the start of a partition's log: its leader has to hear of it."""
        leader = self._leaders.get((partition.topic_id, partition.partition))
        if leader is not None:
            self._fetchers[leader].look_again(partition)

    def on_metadata(
        self, before: MetadataImage, after: MetadataImage, delta: MetadataDelta
    ) -> None:
        """Brokers may be reached, or be reached elsewhere, that were not before."""
        for broker_id in delta.brokers:
            fetcher = self._fetchers.get(broker_id)
            if fetcher is not None:
                fetcher.try_now()

    def close(self) -> None:
        """Follow nothing any more."""
        self._is_closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._leaders.clear()

    def _make_fetcher(self, leader: int) -> ReplicaFetcher:
        node = self._node
        config = node.config
        return ReplicaFetcher(
            leader,
            _Leader(node, leader),
            node.waiting,
            node.reactor.call_later,
            FetcherOptions(
                config.node_id,
                lambda: node.broker_epoch,
                wait_ms_max=config.replica_fetch_wait_max_ms,
                bytes_min=config.replica_fetch_min_bytes,
                partition_bytes_max=config.replica_fetch_max_bytes,
                response_bytes_max=config.replica_fetch_response_max_bytes,
                backoff_s=config.replica_fetch_backoff_ms / 1000,
                lag_ms_max=config.replica_lag_time_max_ms,
                request_timeout_s=config.replica_socket_timeout_ms / 1000,
            ),
            node.throttles.follower,
            node.log,
        )


class _Leader:
    """The way to a leader's node, wherever that is at the time of a call."""

    def __init__(self, node: Node, leader: int) -> None:
        self._node = node
        self._leader = leader

    def call(self, message: Message, done: Answered, *, timeout_s: float) -> None:
        try:
            connection = self._node.peers.to(self._leader, Purpose.REPLICATION)
        except UnknownNodeError as error:
            self._node.reactor.call_soon(lambda error=error: done(None, error))  # type: ignore[misc]
            return
        # Without ids a topic that was deleted and made again would go on where the old one ended.
        version_min = TOPIC_IDS_FROM if isinstance(message, FetchRequest) else None
        connection.call(message, done, timeout_s=timeout_s, version_min=version_min)
