"""Requests that these tests are made of, in short form."""

from typing import Any

from tidelog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.records import Record, encode_batch
from tidelog.testing.wire import WireClient


def batch(*values: bytes, key: bytes | None = b"k", timestamp: int = 1000, **header: Any) -> bytes:
    records = [
        Record(offset=i, timestamp=timestamp, key=key, value=v) for i, v in enumerate(values)
    ]
    return bytes(encode_batch(records, **header))


def produce_request(
    topic: str, records: bytes | None, *, acks: int = -1, partition: int = 0
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def produce(
    wire: WireClient, topic: str, records: bytes | None, *, acks: int = -1, version: int = 9
) -> Any:
    answer = wire.call(produce_request(topic, records, acks=acks), version)
    return answer.responses[0].partition_responses[0]


def fetch_request(topic: str, offset: int, **changes: Any) -> FetchRequest:
    partition_changes = {
        name: changes.pop(name)
        for name in ("current_leader_epoch", "partition_max_bytes", "partition")
        if name in changes
    }
    partition = FetchPartition(
        **{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        | partition_changes
    )
    return FetchRequest(
        **{"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 24}
        | {"topics": [FetchTopic(topic=topic, partitions=[partition])]}
        | changes
    )


def fetch(wire: WireClient, topic: str, offset: int, *, version: int = 12, **changes: Any) -> Any:
    answer = wire.call(fetch_request(topic, offset, **changes), version)
    return answer.responses[0].partitions[0]


def list_offset(
    wire: WireClient, topic: str, timestamp: int, *, version: int = 9, isolation: int = 0
) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )
    return wire.call(request, version).topics[0].partitions[0]


def describe_topic(wire: WireClient, topic: str) -> Any:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    return wire.call(request, 12).topics[0]
