"""How much a node's replicas that catch up may move (KIP-73), leading or following.

A throttle holds for the replicas that the topics name. Nothing of them is sent, or fetched, while
more was moved lately than the limit allows. A replica that is in sync is never held back, whatever
it moves: producers wait for it. What it moves counts, so that the others get what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.byte_throttle import ByteThrottle

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition


class ReplicationThrottle:
    """The throttle of the partitions that a node leads, or of those that it follows."""

    __slots__ = ("_replicas", "bytes", "is_active")

    def __init__(self, throttle: ByteThrottle) -> None:
        self.bytes = throttle
        self._replicas: dict[str, frozenset[int] | None] = {}
        self.is_active = False
        """Whether any replica is throttled: one look at this is all that others cost."""

    def choose(self, topic: str, partitions: frozenset[int] | None) -> None:
        """The partitions of a topic whose replicas on this node are throttled; None for all."""
        known = self._replicas.get(topic, frozenset())
        if partitions == known:
            return
        if partitions is not None and not partitions:
            del self._replicas[topic]
        else:
            self._replicas[topic] = partitions
        self.is_active = bool(self._replicas)
        self.bytes.call_all()

    def throttles(self, partition: Partition) -> bool:
        """Whether this node's replica of a partition is throttled."""
        try:
            partitions = self._replicas[partition.topic]
        except KeyError:
            return False
        return partitions is None or partition.partition in partitions

    def record(self, partition: Partition, size_bytes: int) -> None:
        """So much of a partition was moved; it counts when the partition is throttled."""
        if self.throttles(partition):
            self.bytes.record(size_bytes)

    def holds_back_follower(self, partition: Partition, replica_id: int) -> bool:
        """Of a leader: whether a follower gets nothing now."""
        return (
            self.throttles(partition)
            and not partition.state.awaits(replica_id)
            and self.bytes.is_exceeded
        )
