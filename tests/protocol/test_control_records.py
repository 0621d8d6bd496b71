"""Control records have Kafka's exact layout: clients parse it."""

import pytest

from tidelog.protocol.control_records import (
    EndMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    MetadataLogControl,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
    decode_control,
    encode_control,
    encode_end_marker,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import Record, decode_batches


@pytest.mark.parametrize(("is_commit", "kind"), [(False, 0), (True, 1)])
def test_a_transaction_ends_with_the_marker_that_clients_know(is_commit: bool, kind: int) -> None:
    batch = encode_end_marker(
        producer_id=9,
        producer_epoch=4,
        is_commit=is_commit,
        coordinator_epoch=6,
        timestamp_ms=1234,
        base_offset=50,
        partition_leader_epoch=2,
    )
    [(header, [record])] = decode_batches(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 4, -1)
    assert (header.base_offset, header.partition_leader_epoch) == (50, 2)
    assert record.key == bytes([0, 0, 0, kind])
    assert record.value == bytes([0, 0, 0, 0, 0, 6])
    assert (record.offset, record.timestamp) == (50, 1234)
    assert decode_control(record) == EndMarker(is_commit, 6)


@pytest.mark.parametrize(
    "message",
    [
        LeaderChangeMessage(leader_id=1, voters=[LeaderChangeVoter(voter_id=1)]),
        LeaderChangeMessage(
            version=1, granting_voters=[LeaderChangeVoter(voter_id=1, voter_directory_id=b"d" * 16)]
        ),
        SnapshotHeaderRecord(last_contained_log_timestamp=99),
        SnapshotFooterRecord(),
        KRaftVersionRecord(kraft_version=1),
        VotersRecord(voters=[Voter(endpoints=[VoterEndpoint(name="C", host="h", port=65535)])]),
    ],
    ids=lambda message: type(message).__name__,
)
def test_control_records_of_the_metadata_log_round_trip(message: MetadataLogControl) -> None:
    batch = encode_control(message, timestamp_ms=5, base_offset=3, partition_leader_epoch=1)
    [(header, [record])] = decode_batches(batch)
    assert header.is_control
    assert not header.is_transactional
    assert decode_control(record) == message


def test_later_versions_are_read_as_the_last_one_known() -> None:
    marker = Record(0, 0, bytes([0, 1, 0, 1]), bytes([0, 1, 0, 0, 0, 6, 42]))
    assert decode_control(marker) == EndMarker(True, 6)


def test_types_that_are_not_known_are_passed_over() -> None:
    assert decode_control(Record(0, 0, bytes([0, 0, 0, 77]), bytes(6))) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\x00\x00", b"\x00" * 6), (bytes(4), b"\x00"), (b"\xff\xff\x00\x01", bytes(6))],
)
def test_what_is_no_control_record_is_invalid(key: bytes | None, value: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        decode_control(Record(0, 0, key, value))
    assert caught.value.code is ErrorCode.INVALID_RECORD
