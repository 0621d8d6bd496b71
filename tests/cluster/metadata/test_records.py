"""Metadata records against bytes that Kafka 4.3 wrote (golden/kafka-4.3)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.metadata.record_facts import PINNED, kafka_lines, own_lines
from tidelog.cluster.features import METADATA_VERSIONS
from tidelog.cluster.metadata.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from tidelog.cluster.metadata.records.framing import (
    RECORD_TYPES,
    decode_record,
    encode_record,
    record_version,
)
from tidelog.cluster.metadata.records.log_control import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    ZkMigrationStateRecord,
)
from tidelog.cluster.metadata.records.security import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from tidelog.cluster.metadata.records.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import decode_batches
from tidelog.protocol.schema import Message

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


def test_every_record_of_kafka_4_3_is_known_with_its_versions_and_fields() -> None:
    assert own_lines(RECORD_TYPES) == PINNED.read_text().splitlines()


def test_the_facts_that_are_pinned_are_those_of_kafkas_schemas() -> None:
    jars = Path("~/.m2/repository/org/apache/kafka/kafka-metadata/4.3.1").expanduser()
    jar = jars / "kafka-metadata-4.3.1.jar"
    if not jar.exists():
        pytest.skip("kafka-metadata 4.3.1 is not in the local Maven repository")
    assert kafka_lines(jar) == PINNED.read_text().splitlines()


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


# Kafka's MetadataVersion: in which version a cluster at a metadata.version writes a record, from
# the lowest level on that knows the record at all.
WRITTEN_AS: dict[type[Message], dict[int, int]] = {
    RegisterBrokerRecord: {7: 1, 8: 2, 17: 3, 30: 4},
    PartitionRecord: {7: 0, 17: 1, 23: 2},
    PartitionChangeRecord: {7: 0, 17: 1, 23: 2},
    ZkMigrationStateRecord: {8: 0},
    UserScramCredentialRecord: {11: 0},
    RemoveUserScramCredentialRecord: {11: 0},
    BeginTransactionRecord: {13: 0},
    EndTransactionRecord: {13: 0},
    AbortTransactionRecord: {13: 0},
    DelegationTokenRecord: {14: 0},
    RemoveDelegationTokenRecord: {14: 0},
    RegisterControllerRecord: {15: 0},
    ClearElrRecord: {23: 0},
}


@pytest.mark.parametrize("record_type", RECORD_TYPES.values(), ids=lambda each: each.__name__)
@pytest.mark.parametrize("metadata_version", METADATA_VERSIONS)
def test_the_metadata_version_says_in_which_version_a_record_is_written(
    record_type: type[Message], metadata_version: int
) -> None:
    steps = WRITTEN_AS.get(record_type, {7: 0})
    known = [version for since, version in steps.items() if since <= metadata_version]
    if known:
        assert record_version(record_type(), metadata_version) == known[-1]
    else:
        with pytest.raises(AssertionError, match=f"{record_type.__name__}.*{metadata_version}"):
            record_version(record_type(), metadata_version)


@pytest.mark.parametrize(
    ("change", "version", "since"),
    [
        (BrokerRegistrationChangeRecord(fenced=1), 0, 7),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), 1, 7),
        (BrokerRegistrationChangeRecord(log_dirs=[b"D" * 16]), 2, 17),
        (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), 3, 30),
    ],
)
def test_a_registration_change_takes_the_oldest_version_that_can_say_it(
    change: BrokerRegistrationChangeRecord, version: int, since: int
) -> None:
    for metadata_version in METADATA_VERSIONS:
        if metadata_version >= since:
            assert record_version(change, metadata_version) == version
        else:
            with pytest.raises(AssertionError):
                record_version(change, metadata_version)


def test_cordoned_log_directories_are_kept_from_4_3_on() -> None:
    record = RegisterBrokerRecord(incarnation_id=b"I" * 16, cordoned_log_dirs=[b"D" * 16])
    encoded = encode_record(record, 30)
    assert encoded[:3] == b"\x01\x00\x04"
    assert encoded.endswith(b"\x01\x01\x11\x02" + b"D" * 16)  # one tagged field: 1, 17 bytes
    assert decode_record(encoded) == record
    assert decode_record(encode_record(record, 29)) == RegisterBrokerRecord(
        incarnation_id=b"I" * 16
    )


def test_every_type_survives_a_round_trip_with_its_defaults() -> None:
    for record_type in RECORD_TYPES.values():
        assert decode_record(encode_record(record_type(), 30)) == record_type()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "ends inside its frame"),
        (b"\x01\x02", "ends inside its frame"),
        (b"\x00\x02\x00", "frame version 0"),
        (b"\x01\x63\x00", "unknown type 99.*Newer software"),
        (b"\x01\x02\x07", "TopicRecord has version 7.*Newer software"),
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
