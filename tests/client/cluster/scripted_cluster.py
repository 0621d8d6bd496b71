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
from tidelog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.protocol.apis.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
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
from tidelog.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.record_batch import read_header
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.topic_partition import TopicPartition

T = TypeVar("T")

TOPIC_ID = b"the id of orders"
VERSIONS = {
    ApiKey.METADATA: (0, 13),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.PRODUCE: (3, 13),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
    ApiKey.FETCH: (4, 17),
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
    stored: list[tuple[int, int, int]] = field(default_factory=list)
    """The node, the partition and the base sequence of each batch that was acknowledged."""
    partitions_asked: list[list[int]] = field(default_factory=list)
    metadata_count: int = 0
    brokers: list[ScriptedBroker] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.brokers)

    @contextmanager
    def client(self, nodes: int = 2, timeout_s: float = 30.0) -> Iterator[ClusterClient]:
        with self.running(nodes), Cluster(self.bootstrap, timeout_s=10.0) as cluster:
            yield ClusterClient(cluster, timeout_s)

    @contextmanager
    def running(self, nodes: int = 2) -> Iterator[None]:
        for node in range(nodes):
            answers: dict[ApiKey, Answer] = {
                ApiKey.METADATA: self._metadata,
                ApiKey.FIND_COORDINATOR: partial(self._find_coordinator, node),
                ApiKey.LIST_OFFSETS: partial(self._list_offsets, node),
                ApiKey.OFFSET_COMMIT: partial(self._offset_commit, node),
                ApiKey.PRODUCE: partial(self._produce, node),
                ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
                ApiKey.FETCH: partial(self._fetch, node),
            }
            self.brokers.append(ScriptedBroker(answers, VERSIONS))
        try:
            yield
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

    def _produce(self, node: int, request: ProduceRequest) -> ProduceResponse:
        self.asked.append((node, "produce"))
        code = self._refusal(node)
        rows = []
        for row in request.topic_data[0].partition_data:
            rows.append(PartitionProduceResponse(index=row.index, error_code=code))
            if not code:
                header = read_header(memoryview(row.records or b""), 0)
                self.stored.append((node, row.index, header.base_sequence))
        topic = TopicProduceResponse(name="orders", partition_responses=rows)
        return ProduceResponse(responses=[topic])

    def _init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=7, producer_epoch=0)

    def _fetch(self, node: int, request: FetchRequest) -> FetchResponse:
        """Each partition has one record at every offset, with the node as its value."""
        self.asked.append((node, "fetch"))
        (topic,) = request.topics
        rows = []
        for row in topic.partitions:
            record = Record(row.fetch_offset, 0, None, b"%d" % node)
            batch = encode_batch([record], base_offset=row.fetch_offset)
            rows.append(
                PartitionData(
                    partition_index=row.partition,
                    error_code=self._refusal(node),
                    high_watermark=row.fetch_offset + 1,
                    last_stable_offset=row.fetch_offset + 1,
                    records=batch,
                )
            )
        answer = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows)
        return FetchResponse(responses=[answer])

    def _refusal(self, node: int) -> ErrorCode:
        codes = self.refusals.get(node)
        return codes.pop(0) if codes else ErrorCode.NONE


def orders(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def _next(values: list[T]) -> T:
    return values.pop(0) if len(values) > 1 else values[0]
