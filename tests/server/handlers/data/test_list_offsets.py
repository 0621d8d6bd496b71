"""ListOffsets: times, special places, and which version knows which."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from tests.server.handlers.admin_calls import create_topic, list_offset, produce
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.broker import Broker
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]


@pytest.fixture
def topic(wire: WireClient, new_name: NewName) -> str:
    name = new_name("topic")
    create_topic(wire, name)
    produce(wire, name, 1000, 3000)
    produce(wire, name, 2000, 2500)
    return name


@pytest.mark.parametrize("version", range(1, 12))
def test_the_ends_of_the_log(wire: WireClient, topic: str, version: int) -> None:
    end = list_offset(wire, topic, -1, version=version)
    start = list_offset(wire, topic, -2, version=version)
    assert (end.error_code, end.offset, end.timestamp) == (0, 4, -1)
    assert (start.error_code, start.offset, start.timestamp) == (0, 0, -1)
    assert end.leader_epoch == (0 if version >= 4 else -1)


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_timestamp"),
    [(0, 0, 1000), (1000, 0, 1000), (1001, 1, 3000), (2000, 1, 3000), (3001, -1, -1)],
)
def test_the_first_record_at_or_after_a_time(
    wire: WireClient, topic: str, timestamp: int, offset: int, found_timestamp: int
) -> None:
    row = list_offset(wire, topic, timestamp)
    assert (row.error_code, row.offset, row.timestamp) == (0, offset, found_timestamp)


def test_the_largest_timestamp_and_the_tiered_places(wire: WireClient, topic: str) -> None:
    largest = list_offset(wire, topic, -3)
    assert (largest.offset, largest.timestamp) == (1, 3000)
    assert list_offset(wire, topic, -4).offset == 0
    tiered = list_offset(wire, topic, -5)
    assert (tiered.error_code, tiered.offset) == (0, -1)


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_special_timestamp_below_its_version_is_unsupported(
    wire: WireClient, topic: str, timestamp: int, since: int
) -> None:
    row = list_offset(wire, topic, timestamp, version=since - 1)
    assert (row.error_code, row.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
    assert list_offset(wire, topic, timestamp, version=since).error_code == 0


def test_unknown_special_timestamps_are_unsupported(wire: WireClient, topic: str) -> None:
    assert list_offset(wire, topic, -7, version=11).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_leader_epochs_are_fenced(wire: WireClient, topic: str) -> None:
    row = list_offset(wire, topic, -1, current_leader_epoch=5)
    assert row.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert list_offset(wire, topic, -1, current_leader_epoch=0).offset == 4


def test_partitions_that_are_not_there_get_their_rows(wire: WireClient, topic: str) -> None:
    row = list_offset(wire, topic, -1, partition=7)
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    row = list_offset(wire, "no-such-topic", -1)
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_asked_for_twice_is_refused(wire: WireClient, topic: str) -> None:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition, partition])]
    )
    rows = wire.call(request, 7).topics[0].partitions
    assert {row.error_code for row in rows} == {ErrorCode.INVALID_REQUEST}


def test_the_end_for_readers_of_committed_records_is_before_open_transactions(
    wire: WireClient, handlers_broker: Broker, new_name: NewName
) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    producer = Producer(
        {
            "bootstrap.servers": handlers_broker.bootstrap_servers,
            "transactional.id": new_name("transaction"),
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    assert list_offset(wire, topic, -1).offset == 1
    assert list_offset(wire, topic, -1, isolation_level=1).offset == 0
    # A tool for debugging sees the log as it is.
    assert list_offset(wire, topic, -1, isolation_level=1, replica_id=-2).offset == 1
    producer.commit_transaction(30)
    # The commit is answered before its marker is in the log.
    deadline = time.monotonic() + 30
    while list_offset(wire, topic, -1, isolation_level=1).offset != 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert list_offset(wire, topic, -1).offset == 2
