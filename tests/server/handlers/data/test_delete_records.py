"""DeleteRecords: the start of a log moves up."""

from collections.abc import Callable

import pytest

from tests.server.handlers.admin_calls import create_topic, list_offset, produce
from tidelog.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]


def delete_before(
    wire: WireClient, topic: str, offset: int, *, partition: int = 0, version: int = 2
) -> DeleteRecordsPartitionResult:
    request = DeleteRecordsRequest(
        timeout_ms=10_000,
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)],
            )
        ],
    )
    (answered,) = wire.call(request, version).topics
    assert answered.name == topic
    row: DeleteRecordsPartitionResult = answered.partitions[0]
    assert row.partition_index == partition
    return row


@pytest.mark.parametrize("version", range(3))
def test_records_before_the_offset_go(wire: WireClient, new_name: NewName, version: int) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    produce(wire, topic, 1, 2, 3)
    row = delete_before(wire, topic, 2, version=version)
    assert (row.error_code, row.low_watermark) == (0, 2)
    assert list_offset(wire, topic, -2).offset == 2


def test_minus_one_is_the_high_watermark(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    produce(wire, topic, 1, 2, 3)
    assert delete_before(wire, topic, -1).low_watermark == 3
    assert list_offset(wire, topic, -2).offset == 3
    assert produce(wire, topic, 4) == 3


@pytest.mark.parametrize("offset", [4, -2])
def test_offsets_outside_the_log_are_refused(
    wire: WireClient, new_name: NewName, offset: int
) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    produce(wire, topic, 1, 2, 3)
    row = delete_before(wire, topic, offset)
    assert (row.error_code, row.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_a_missing_partition_is_told(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    row = delete_before(wire, topic, 0, partition=4)
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_compacted_topic_keeps_its_records(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic, cleanup_policy="compact")
    produce(wire, topic, 1)
    assert delete_before(wire, topic, 1).error_code == ErrorCode.POLICY_VIOLATION
