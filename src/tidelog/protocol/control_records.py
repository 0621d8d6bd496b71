"""Control records: what the log says about itself, in batches that consumers never see.

The key is a version and a type; the value depends on the type. Transaction markers end a
transaction in a partition; the others belong to the metadata log and its snapshots.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.record_batch import NO_PARTITION_LEADER_EPOCH
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Message,
    Struct,
    field,
)

_KEY = struct.Struct(">hh")
_END_MARKER = struct.Struct(">hi")


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class LeaderChangeVoter(Struct):
    voter_id: int = field(INT32, "0+")
    voter_directory_id: bytes = field(UUID, "1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: int = field(INT16, "0+")
    leader_id: int = field(INT32, "0+")
    voters: list[LeaderChangeVoter] = field(Array(LeaderChangeVoter), "0+")
    granting_voters: list[LeaderChangeVoter] = field(Array(LeaderChangeVoter), "0+")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: int = field(INT16, "0+")
    last_contained_log_timestamp: int = field(INT64, "0+")


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: int = field(INT16, "0+")


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: int = field(INT16, "0+")
    kraft_version: int = field(INT16, "0+")


class VoterEndpoint(Struct):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")


class VoterVersionFeature(Struct):
    min_supported_version: int = field(INT16, "0+")
    max_supported_version: int = field(INT16, "0+")


class Voter(Struct):
    voter_id: int = field(INT32, "0+")
    voter_directory_id: bytes = field(UUID, "0+")
    endpoints: list[VoterEndpoint] = field(Array(VoterEndpoint), "0+")
    kraft_version_feature: VoterVersionFeature = field(VoterVersionFeature, "0+")


class VotersRecord(Message, versions="0", flexible="0+"):
    version: int = field(INT16, "0+")
    voters: list[Voter] = field(Array(Voter), "0+")


@dataclass(slots=True, frozen=True)
class EndMarker:
    """The end of a transaction in one partition."""

    is_commit: bool
    coordinator_epoch: int


MetadataLogControl = (
    LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | VotersRecord
)

_MESSAGES: dict[ControlType, type[MetadataLogControl]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_NUMBERS = frozenset(ControlType)
_TYPES: dict[type[Message], ControlType] = {
    message: control_type for control_type, message in _MESSAGES.items()
}


def encode_end_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    is_commit: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """The batch of one marker that commits or aborts the producer's transaction."""
    control_type = ControlType.COMMIT if is_commit else ControlType.ABORT
    record = Record(
        base_offset,
        timestamp_ms,
        _KEY.pack(0, control_type),
        _END_MARKER.pack(0, coordinator_epoch),
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def encode_control(
    message: MetadataLogControl,
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """The batch of one control record of the metadata log, such as SnapshotHeaderRecord."""
    return encode_controls(
        [message],
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
    )


def encode_controls(
    messages: Sequence[MetadataLogControl],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """One batch of several control records: a log has all of them or none."""
    records = [
        Record(
            base_offset + index,
            timestamp_ms,
            _KEY.pack(0, _TYPES[type(message)]),
            message.encode(message.version),
        )
        for index, message in enumerate(messages)
    ]
    return encode_batch(
        records,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        is_control=True,
    )


def decode_control(record: Record) -> EndMarker | MetadataLogControl | None:
    """What a record of a control batch says; None for a type that is not known here."""
    try:
        key_version, number = _KEY.unpack_from(record.key or b"")
        (value_version,) = struct.unpack_from(">h", record.value or b"")
        if key_version < 0 or value_version < 0:
            raise ProtocolError(f"versions {key_version} and {value_version}")
        if number not in _NUMBERS:
            return None
        control_type = ControlType(number)
        if control_type in (ControlType.ABORT, ControlType.COMMIT):
            _, coordinator_epoch = _END_MARKER.unpack_from(record.value or b"")
            return EndMarker(control_type is ControlType.COMMIT, coordinator_epoch)
        message = _MESSAGES[control_type]
        version = min(value_version, message.MAX_VERSION)
        decoded, _ = message.decode_prefix(record.value or b"", version)
        return decoded
    except (struct.error, ProtocolError) as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"not a control record: {error}") from None
