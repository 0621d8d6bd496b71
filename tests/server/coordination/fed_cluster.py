"""Several real nodes on real sockets, fed the same metadata by the test.

Each node is a quorum of its own; what the test decides is written into the metadata of all of them,
so that they agree on brokers, topics and leaders. Records get to another replica when the test says
so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.server.running_node import RunningNode
from tidelog.cluster.metadata.image import PartitionImage
from tidelog.cluster.metadata.records.brokers import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from tidelog.cluster.metadata.records.settings import ProducerIdsRecord
from tidelog.cluster.metadata.records.topics import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tidelog.cluster.replication.partition import Partition
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.protocol.schema import Message
from tidelog.protocol.uuids import random_uuid
from tidelog.server.node import Node

_RANDOM = Random(7)
# Each node has a controller of its own, which must not look after the others.
_SETTINGS = {
    "cluster.id": "4L6g3nShT-eMCtK--X86sw",
    "broker.session.timeout.ms": "3600000",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
}
_DIRECTORY = b"\0" * 15 + b"\1"


class FedCluster:
    """Nodes 1 to `count`. Node 1 leads both partitions of `__consumer_offsets` and
    `__transaction_state` unless `internal_leaders` says otherwise."""

    def __init__(
        self,
        data: Path,
        count: int = 2,
        *,
        offsets_leaders: Sequence[int] = (1, 1),
        transaction_leaders: Sequence[int] = (1, 1),
        settings: dict[str, str] | None = None,
    ) -> None:
        self.nodes: dict[int, RunningNode] = {}
        try:
            for node_id in range(1, count + 1):
                self.nodes[node_id] = RunningNode(
                    data / f"node-{node_id}",
                    {**_SETTINGS, "node.id": str(node_id), **(settings or {})},
                )
                self.on(node_id, lambda node: node.followed_partitions.close())
            self._register_all()
            self.create_topic(CONSUMER_OFFSETS_TOPIC, offsets_leaders)
            self.create_topic(TRANSACTION_STATE_TOPIC, transaction_leaders)
        except BaseException:
            self.stop()
            raise

    def _register_all(self) -> None:
        for own_id, running in self.nodes.items():
            # Producer ids come from the quorum of each node: keep them apart.
            records: list[Message] = [
                ProducerIdsRecord(broker_id=own_id, next_producer_id=own_id * 1_000_000)
            ]
            for node_id, other in self.nodes.items():
                if node_id != own_id:
                    records.append(
                        RegisterBrokerRecord(
                            broker_id=node_id,
                            incarnation_id=random_uuid(_RANDOM),
                            broker_epoch=node_id,
                            end_points=[
                                BrokerEndpoint(name="PLAINTEXT", host=other.host, port=other.port)
                            ],
                            fenced=False,
                            log_dirs=[_DIRECTORY],
                        )
                    )
            self._feed_one(running, records)

    # Metadata

    def feed(self, *records: Message) -> None:
        """Write these into the metadata of all nodes, and wait until they have them."""
        for running in self.nodes.values():
            self._feed_one(running, records)

    def _feed_one(self, running: RunningNode, records: Sequence[Message]) -> None:
        running.wait_for(lambda: running.node.metadata.propose(records).committed)

    def create_topic(self, name: str, leaders: Sequence[int]) -> bytes:
        """A topic whose partitions all nodes have; the leader alone is in sync."""
        topic_id = random_uuid(_RANDOM)
        partitions = [
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[leader, *(each for each in self.nodes if each != leader)],
                isr=[leader],
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
                directories=[_DIRECTORY] * len(self.nodes),
            )
            for index, leader in enumerate(leaders)
        ]
        self.feed(TopicRecord(name=name, topic_id=topic_id), *partitions)
        return topic_id

    def delete_topic(self, name: str) -> None:
        topic_id = next(iter(self.nodes.values())).node.image.topics_by_name[name].topic_id
        self.feed(RemoveTopicRecord(topic_id=topic_id))

    def image_of(self, topic: str, index: int) -> PartitionImage:
        found = next(iter(self.nodes.values())).node.image.partition(topic, index)
        assert found is not None
        return found

    def set_leader(self, topic: str, index: int, leader: int) -> None:
        """Make a node the leader, -1 for nobody, with what it has."""
        running = next(iter(self.nodes.values()))
        topic_id = running.node.image.topics_by_name[topic].topic_id
        change = PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=leader)
        if leader >= 0:
            change.isr = [leader]
        self.feed(change)

    def move_leader(self, topic: str, index: int, leader: int) -> None:
        """The same for a node that has everything: leadership goes, the log follows, then it
        comes."""
        before = self.image_of(topic, index).leader
        self.set_leader(topic, index, -1)
        if before >= 0:
            self.copy_log(topic, index, before, leader)
        self.set_leader(topic, index, leader)

    def fence(self, node_id: int, *, fenced: bool = True) -> None:
        """Say of a node, to all others, that it has no session."""
        for own_id, running in self.nodes.items():
            if own_id != node_id:
                change = BrokerRegistrationChangeRecord(
                    broker_id=node_id,
                    broker_epoch=running.node.image.brokers[node_id].epoch,
                    fenced=1 if fenced else -1,
                )
                self._feed_one(running, [change])

    # Logs

    def copy_log(self, topic: str, index: int, source: int, target: int) -> None:
        """What a follower that fetches has done: the same bytes at the same offsets."""
        start = self.on(target, lambda node: partition(node, topic, index).log_end_offset)
        batches = self.on(source, lambda node: _read_from(partition(node, topic, index), start))
        if batches:
            self.on(
                target,
                lambda node: partition(node, topic, index).append_as_follower(memoryview(batches)),
            )

    def on(self, node_id: int, action: Callable[[Node], Any]) -> Any:
        """Run `action(node)` on the loop of a node."""
        running = self.nodes[node_id]
        return running.call(lambda: action(running.node))

    def stop(self) -> None:
        for running in self.nodes.values():
            running.stop()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{each.host}:{each.port}" for each in self.nodes.values())


def partition(node: Node, topic: str, index: int) -> Partition:
    found = node.partitions.get(topic, index)
    assert found is not None, f"{topic}-{index} is not on node {node.config.node_id}"
    return found


def _read_from(partition: Partition, offset: int) -> bytearray:
    log = partition.log
    batches = bytearray()
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, log.log_end_offset)
        assert found.file_slice is not None
        batches += found.file_slice.read(log.files)
        offset = found.next_offset
    return batches
