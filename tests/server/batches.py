"""Requests and batches that the tests of the data path send."""

from __future__ import annotations

import time
from typing import Any

from tidelog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tidelog.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.records import Record, decode_batches, encode_batch
from tidelog.testing.wire import WireClient

PRODUCE_VERSION = 9
FETCH_VERSION = 12


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch(*values: bytes, key: bytes | None = None, **settings: Any) -> bytes:
    """One record batch with these values."""
    records = [Record(index, now_ms(), key, value) for index, value in enumerate(values)]
    return bytes(encode_batch(records, **settings))


def produce_request(
    topic: str | bytes,
    batches: dict[int, bytes | None],
    *,
    acks: int = -1,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Batches for partitions of one topic, which is named or given by its id."""
    data = TopicProduceData(
        partition_data=[
            PartitionProduceData(index=index, records=records) for index, records in batches.items()
        ]
    )
    if isinstance(topic, str):
        data.name = topic
    else:
        data.topic_id = topic
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[data], transactional_id=transactional_id
    )


def produce(
    client: WireClient, topic: str, *values: bytes, partition: int = 0, acks: int = -1
) -> int:
    """Append one batch; returns its first offset."""
    request = produce_request(topic, {partition: batch(*values)}, acks=acks)
    (row,) = client.call(request, PRODUCE_VERSION).responses[0].partition_responses
    assert row.error_code == 0, row
    offset: int = row.base_offset
    return offset


def fetch_request(
    topic: str | bytes,
    offsets: dict[int, int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 10_000_000,
    partition_max_bytes: int = 1_000_000,
    forgotten: list[int] | None = None,
    **fields: Any,
) -> FetchRequest:
    """A fetch of partitions of one topic from these offsets."""
    request = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, **fields
    )
    if offsets:
        wanted = FetchTopic(
            partitions=[
                FetchPartition(
                    partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
                )
                for index, offset in offsets.items()
            ]
        )
        if isinstance(topic, str):
            wanted.topic = topic
        else:
            wanted.topic_id = topic
        request.topics = [wanted]
    if forgotten:
        assert isinstance(topic, str)
        request.forgotten_topics_data = [ForgottenTopic(topic=topic, partitions=forgotten)]
    return request


def rows(response: Any) -> dict[int, Any]:
    """The rows of a fetch response by partition."""
    return {row.partition_index: row for topic in response.responses for row in topic.partitions}


def values(row: Any) -> list[bytes]:
    """The values of the records in a row of a fetch response."""
    return [
        record.value or b""
        for _, records in decode_batches(memoryview(row.records or b""))
        for record in records
    ]
