"""What was last heard of a cluster: brokers, leaders, coordinators.

Nothing in it need still be true. Who is contradicted by a broker, or cannot reach one, invalidates
what it relied on, and the next call asks again. A view has no connections, so that all users of a
cluster in one process can share it.
"""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.cluster.retrying import RETRIABLE, Stale
from tidelog.client.topic_layout import TopicLayout
from tidelog.protocol.apis.metadata import MetadataResponse, MetadataResponseTopic
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import ZERO_UUID

# Every job of Spark has transactional ids of its own.
_COORDINATORS_MAX = 10_000


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Coordinated(NamedTuple):
    """A group or a transactional id; `kind` is COORDINATOR_GROUP or COORDINATOR_TRANSACTION."""

    kind: int
    key: str


@dataclass(slots=True, frozen=True)
class PartitionLeader:
    """Where a partition is read and written, and by which names."""

    node_id: int
    address: Address
    topic_id: bytes
    leader_epoch: int


@dataclass(slots=True, frozen=True)
class TopicView:
    """A topic that exists, as of `read_s` on the monotonic clock."""

    layout: TopicLayout
    read_s: float


@dataclass(slots=True)
class ClusterView:
    """What brokers have told of a cluster."""

    brokers: dict[int, Address] = field(default_factory=dict)
    topics: dict[str, TopicView] = field(default_factory=dict)
    leaders: dict[TopicPartition, PartitionLeader] = field(default_factory=dict)
    coordinators: dict[Coordinated, Address] = field(default_factory=dict)
    features: dict[str, int] | None = None
    """The finalized levels of the cluster's features; None if no broker was asked."""

    def learn(self, metadata: MetadataResponse) -> None:
        """Take over what a broker answered."""
        self.brokers = {each.node_id: Address(each.host, each.port) for each in metadata.brokers}
        racks = {each.node_id: each.rack for each in metadata.brokers}
        for topic in metadata.topics:
            if not topic.error_code and topic.partitions:
                self._learn_topic(topic, racks)
            elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.topics.pop(topic.name or "", None)

    def _learn_topic(self, topic: MetadataResponseTopic, racks: dict[int, str | None]) -> None:
        name = topic.name or ""
        rows = sorted(topic.partitions, key=lambda each: each.partition_index)
        layout = TopicLayout(name, tuple(racks.get(each.leader_id) for each in rows))
        known = self.topics.get(name)
        if known is not None and known.layout == layout:
            # Partitioners tell by the object that nothing has changed.
            layout = known.layout
        self.topics[name] = TopicView(layout, time.monotonic())
        for row in rows:
            partition = TopicPartition(name, row.partition_index)
            address = self.brokers.get(row.leader_id)
            if address is None:
                self.leaders.pop(partition, None)
                continue
            leader = PartitionLeader(row.leader_id, address, topic.topic_id, row.leader_epoch)
            if not _is_older(leader, self.leaders.get(partition)):
                self.leaders[partition] = leader

    def learn_coordinator(self, coordinated: Coordinated, address: Address) -> None:
        """Take over who coordinates a group or a transactional id."""
        if len(self.coordinators) >= _COORDINATORS_MAX:
            self.coordinators.clear()
        self.coordinators[coordinated] = address

    def invalidate_leader(self, partition: TopicPartition, code: int) -> None:
        """Forget who leads a partition if an error shows that to be out of date."""
        if RETRIABLE.get(ErrorCode(code), Stale.NOTHING) & Stale.METADATA:
            self.leaders.pop(partition, None)

    def invalidate_coordinator(self, coordinated: Coordinated, code: int) -> None:
        """Forget a coordinator if an error shows it to be out of date."""
        if RETRIABLE.get(ErrorCode(code), Stale.NOTHING) & Stale.COORDINATOR:
            self.coordinators.pop(coordinated, None)

    def invalidate_broker(self, address: Address) -> None:
        """Forget all that a broker led or coordinated: it cannot be reached."""
        # Copies, because others of this process may change the view meanwhile.
        for partition, leader in list(self.leaders.items()):
            if leader.address == address:
                self.leaders.pop(partition, None)
        for coordinated, each in list(self.coordinators.items()):
            if each == address:
                self.coordinators.pop(coordinated, None)


def _is_older(told: PartitionLeader, known: PartitionLeader | None) -> bool:
    """Whether the broker that told it has not heard yet of a leader that is known."""
    return (
        known is not None
        and known.topic_id == told.topic_id != ZERO_UUID
        and known.leader_epoch > told.leader_epoch
    )
