"""Scripted brokers that are one cluster: leaders and coordinators move when a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from tests.client.cluster.scripted_broker import Answer, ScriptedBroker
from tidelog.client.cluster import Cluster, ClusterClient
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition

T = TypeVar("T")

TOPIC_ID = b"the id of orders"
VERSIONS = {
    ApiKey.METADATA: (0, 13),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.OFFSET_COMMIT: (2, 9),
}


@dataclass
class ScriptedCluster:
    """What brokers say. Each list has what comes next; the last entry stays.

    `leaders` is for each partition of the topic orders the nodes that lead it, one for each time
    that metadata is asked for; `coordinators` the same for every group. `refusals` are the errors
    that a node answers with before it answers well.
    """

    leaders: dict[int, list[int]] = field(default_factory=lambda: {0: [0]})
    coordinators: list[int | ErrorCode] = field(default_factory=lambda: [0])
    refusals: dict[int, list[ErrorCode]] = field(default_factory=dict)
    asked: list[tuple[int, str]] = field(default_factory=list)
    """The node and the name of each request, without those for metadata."""
    partitions_asked: list[list[int]] = field(default_factory=list)
    metadata_count: int = 0
    brokers: list[ScriptedBroker] = field(default_factory=list)

    @contextmanager
    def client(self, nodes: int = 2, timeout_s: float = 30.0) -> Iterator[ClusterClient]:
        for node in range(nodes):
            answers: dict[ApiKey, Answer] = {
                ApiKey.METADATA: self._metadata,
                ApiKey.FIND_COORDINATOR: partial(self._find_coordinator, node),
                ApiKey.LIST_OFFSETS: partial(self._list_offsets, node),
                ApiKey.OFFSET_COMMIT: partial(self._offset_commit, node),
            }
            self.brokers.append(ScriptedBroker(answers, VERSIONS))
        bootstrap = ",".join(each.bootstrap for each in self.brokers)
        try:
            with Cluster(bootstrap, timeout_s=10.0) as cluster:
                yield ClusterClient(cluster, timeout_s)
        finally:
            for each in self.brokers:
                each.stop()

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        if request.topics:
            self.metadata_count += 1
        rows = [
            MetadataResponsePartition(partition_index=index, leader_id=_next(nodes), leader_epoch=3)
            for index, nodes in self.leaders.items()
        ]
        topics = [
            MetadataResponseTopic(name="orders", topic_id=TOPIC_ID, partitions=rows)
            if each.name == "orders"
            else MetadataResponseTopic(
                name=each.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for each in request.topics or ()
        ]
        brokers = [
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=each.port)
            for node, each in enumerate(self.brokers)
        ]
        return MetadataResponse(brokers=brokers, topics=topics)

    def _find_coordinator(
        self, node: int, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        self.asked.append((node, "find"))
        told = _next(self.coordinators)
        rows = [
            Coordinator(key=key, error_code=told)
            if isinstance(told, ErrorCode)
            else Coordinator(key=key, node_id=told, host="127.0.0.1", port=self.brokers[told].port)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=rows)

    def _list_offsets(self, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        asked = [row.partition_index for row in topic.partitions]
        self.asked.append((node, "list"))
        self.partitions_asked.append(asked)
        code = self._refusal(node)
        # Only the first is refused.
        rows = [
            ListOffsetsPartitionResponse(
                partition_index=index,
                offset=100 * node + index,
                error_code=code if at == 0 else ErrorCode.NONE,
            )
            for at, index in enumerate(asked)
        ]
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=topic.name, partitions=rows)]
        )

    def _offset_commit(self, node: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
        self.asked.append((node, "commit"))
        row = OffsetCommitResponsePartition(partition_index=0, error_code=self._refusal(node))
        return OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic(name="orders", partitions=[row])]
        )

    def _refusal(self, node: int) -> ErrorCode:
        codes = self.refusals.get(node)
        return codes.pop(0) if codes else ErrorCode.NONE


def orders(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def _next(values: list[T]) -> T:
    return values.pop(0) if len(values) > 1 else values[0]
