"""Requests that many tests need, and how to read their answers."""

from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.records import Record, encode_batch
from tidelog.testing.wire import WireClient


def create_topic(
    wire: WireClient, name: str, partitions: int = 1, **configs: str
) -> CreatableTopicResult:
    """Create a topic with settings given as `retention_ms="1"`."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ]
    )
    row: CreatableTopicResult = wire.call(request, 7).topics[0]
    assert row.error_code == 0, row.error_message
    return row


def describe_topic(wire: WireClient, name: str) -> MetadataResponseTopic:
    response: MetadataResponse = wire.call(
        MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False),
        12,
    )
    return response.topics[0]


def produce(wire: WireClient, topic: str, *timestamps_ms: int, partition: int = 0) -> int:
    """Produce one batch with a record for each timestamp; returns its first offset."""
    records = [
        Record(offset=place, timestamp=timestamp_ms, key=b"k", value=b"v", headers=[])
        for place, timestamp_ms in enumerate(timestamps_ms)
    ]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=partition, records=bytes(encode_batch(records)))
                ],
            )
        ],
    )
    row = wire.call(request, 9).responses[0].partition_responses[0]
    assert row.error_code == 0
    return int(row.base_offset)


def list_offset(
    wire: WireClient,
    topic: str,
    timestamp: int,
    *,
    version: int = 9,
    partition: int = 0,
    current_leader_epoch: int = -1,
    isolation_level: int = 0,
    replica_id: int = -1,
) -> ListOffsetsPartitionResponse:
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=partition,
                        timestamp=timestamp,
                        current_leader_epoch=current_leader_epoch,
                    )
                ],
            )
        ],
    )
    row: ListOffsetsPartitionResponse = wire.call(request, version).topics[0].partitions[0]
    assert row.partition_index == partition
    return row
