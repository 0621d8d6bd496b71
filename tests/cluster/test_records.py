"""Metadata records against bytes that Kafka 4.3 wrote (golden/kafka-4.3)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cluster.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from tidelog.cluster.records.framing import (
    RECORD_TYPES,
    decode_record,
    encode_record,
    record_version,
)
from tidelog.cluster.records.topics import PartitionChangeRecord, PartitionRecord, TopicRecord
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import decode_batches

KAFKA_LOG = Path(__file__).parent / "golden" / "kafka-4.3" / "00000000000000000000.log"


def kafka_values() -> list[bytes]:
    return [
        record.value or b""
        for header, records in decode_batches(KAFKA_LOG.read_bytes())
        if not header.is_control
        for record in records
    ]


def test_every_record_that_kafka_wrote_is_read_and_written_again_byte_for_byte() -> None:
    values = kafka_values()
    assert [encode_record(decode_record(value), 25) for value in values] == values
    names = {type(decode_record(value)).__name__ for value in values}
    assert len(names) == 17


def test_a_partition_record_has_kafkas_layout() -> None:
    record = PartitionRecord(
        partition_id=1,
        topic_id=b"T" * 16,
        replicas=[1, 2],
        isr=[2],
        leader=2,
        leader_recovery_state=1,
        leader_epoch=5,
        partition_epoch=9,
        directories=[b"D" * 16],
        eligible_leader_replicas=[1],
    )
    assert (
        encode_record(record, 25)
        == (
            b"\x01\x03\x02"  # frame version 1, type 3, version 2
            b"\x00\x00\x00\x01" + b"T" * 16 + b"\x03\x00\x00\x00\x01\x00\x00\x00\x02"  # replicas
            b"\x02\x00\x00\x00\x02"  # isr
            b"\x01\x01"  # none removing, none adding
            b"\x00\x00\x00\x02\x00\x00\x00\x05\x00\x00\x00\x09"  # leader and epochs
            b"\x02" + b"D" * 16 + b"\x02"  # two tagged fields
            b"\x00\x01\x01"  # 0: recovering
            b"\x01\x05\x02\x00\x00\x00\x01"  # 1: eligible leader replicas
        )
    )


def test_what_did_not_change_takes_no_bytes_in_a_partition_change() -> None:
    record = PartitionChangeRecord(partition_id=0, topic_id=b"T" * 16, leader=-1)
    assert encode_record(record, 25) == (
        b"\x01\x05\x02" + bytes(4) + b"T" * 16 + b"\x01\x01\x04\xff\xff\xff\xff"
    )


@pytest.mark.parametrize(
    ("metadata_version", "partition", "broker"), [(7, 0, 1), (8, 0, 2), (17, 1, 3), (25, 2, 3)]
)
def test_the_metadata_version_says_in_which_version_records_are_written(
    metadata_version: int, partition: int, broker: int
) -> None:
    assert record_version(PartitionRecord(), metadata_version) == partition
    assert record_version(PartitionChangeRecord(), metadata_version) == partition
    assert record_version(RegisterBrokerRecord(), metadata_version) == broker
    assert record_version(TopicRecord(), metadata_version) == 0


def test_a_registration_change_takes_the_oldest_version_that_can_say_it() -> None:
    assert record_version(BrokerRegistrationChangeRecord(fenced=1), 25) == 0
    assert record_version(BrokerRegistrationChangeRecord(in_controlled_shutdown=1), 25) == 1
    assert record_version(BrokerRegistrationChangeRecord(log_dirs=[b"D" * 16]), 25) == 2


def test_every_type_survives_a_round_trip_with_its_defaults() -> None:
    for record_type in RECORD_TYPES.values():
        assert decode_record(encode_record(record_type(), 25)) == record_type()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "ends inside its frame"),
        (b"\x01\x02", "ends inside its frame"),
        (b"\x00\x02\x00", "frame version 0"),
        (b"\x01\x63\x00", "unknown type 99"),
        (b"\x01\x02\x07", "TopicRecord has version 7"),
    ],
)
def test_a_damaged_frame_is_told_of(value: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode_record(value)


@given(st.binary(max_size=80))
def test_random_bytes_are_a_record_or_a_protocol_error(value: bytes) -> None:
    try:
        decode_record(value)
    except ProtocolError:
        pass
