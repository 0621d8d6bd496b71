"""How a metadata record lies in the log.

A record's value is the frame version (1), the record's type and its version, each an unsigned
varint, and then the message. Its key is always null.
"""

from __future__ import annotations

from tidelog.cluster.metadata.records import brokers, log_control, security, settings, topics
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.schema import Message
from tidelog.protocol.varint import encode_uvarint, read_uvarint

FRAME_VERSION = 1

_NEWER = (
    ". Newer software has written it: start that again, or, where it can, lower the cluster's "
    "metadata.version with it first"
)

RECORD_TYPES: dict[int, type[Message]] = {
    record.API_KEY: record
    for record in (
        brokers.BrokerRegistrationChangeRecord,
        brokers.FenceBrokerRecord,
        brokers.RegisterBrokerRecord,
        brokers.RegisterControllerRecord,
        brokers.UnfenceBrokerRecord,
        brokers.UnregisterBrokerRecord,
        log_control.AbortTransactionRecord,
        log_control.BeginTransactionRecord,
        log_control.EndTransactionRecord,
        log_control.NoOpRecord,
        log_control.ZkMigrationStateRecord,
        security.AccessControlEntryRecord,
        security.DelegationTokenRecord,
        security.RemoveAccessControlEntryRecord,
        security.RemoveDelegationTokenRecord,
        security.RemoveUserScramCredentialRecord,
        security.UserScramCredentialRecord,
        settings.ClientQuotaRecord,
        settings.ConfigRecord,
        settings.FeatureLevelRecord,
        settings.ProducerIdsRecord,
        topics.ClearElrRecord,
        topics.PartitionChangeRecord,
        topics.PartitionRecord,
        topics.RemoveTopicRecord,
        topics.TopicRecord,
    )
}

# From which metadata.version on a record is written in which version; the last that fits counts.
_VERSIONS: dict[int, tuple[tuple[int, int], ...]] = {
    brokers.RegisterBrokerRecord.API_KEY: ((7, 1), (8, 2), (17, 3), (30, 4)),
    brokers.RegisterControllerRecord.API_KEY: ((15, 0),),
    log_control.AbortTransactionRecord.API_KEY: ((13, 0),),
    log_control.BeginTransactionRecord.API_KEY: ((13, 0),),
    log_control.EndTransactionRecord.API_KEY: ((13, 0),),
    log_control.ZkMigrationStateRecord.API_KEY: ((8, 0),),
    security.DelegationTokenRecord.API_KEY: ((14, 0),),
    security.RemoveDelegationTokenRecord.API_KEY: ((14, 0),),
    security.RemoveUserScramCredentialRecord.API_KEY: ((11, 0),),
    security.UserScramCredentialRecord.API_KEY: ((11, 0),),
    topics.ClearElrRecord.API_KEY: ((23, 0),),
    topics.PartitionRecord.API_KEY: ((7, 0), (17, 1), (23, 2)),
    topics.PartitionChangeRecord.API_KEY: ((7, 0), (17, 1), (23, 2)),
}
_ALWAYS = ((0, 0),)


def record_version(record: Message, metadata_version: int) -> int:
    """The version in which a cluster at `metadata_version` writes the record.

    A decision must not give a record that the cluster's level does not know.
    """
    versions = _VERSIONS.get(record.API_KEY, _ALWAYS)
    if isinstance(record, brokers.BrokerRegistrationChangeRecord):
        versions = (_change_version(record),)
    known = [version for since, version in versions if metadata_version >= since]
    assert known, f"{type(record).__name__} is not known at metadata.version {metadata_version}"
    return known[-1]


def _change_version(record: brokers.BrokerRegistrationChangeRecord) -> tuple[int, int]:
    """Kafka takes the oldest version that can say it: (metadata.version, version)."""
    if record.cordoned_log_dirs is not None:
        return 30, 3
    if record.log_dirs:
        return 17, 2
    return 7, 1 if record.in_controlled_shutdown else 0


def encode_record(record: Message, metadata_version: int) -> bytes:
    """A record's value, frame included."""
    version = record_version(record, metadata_version)
    return (
        encode_uvarint(FRAME_VERSION)
        + encode_uvarint(record.API_KEY)
        + encode_uvarint(version)
        + record.encode(version)
    )


def decode_record(value: bytes | bytearray | memoryview) -> Message:
    """The record in a framed value; ProtocolError for anything that is not one."""
    try:
        frame_version, at = read_uvarint(value, 0)
        type_id, at = read_uvarint(value, at)
        version, at = read_uvarint(value, at)
    except IndexError:
        raise ProtocolError("a metadata record ends inside its frame") from None
    if frame_version != FRAME_VERSION:
        raise ProtocolError(f"a metadata record has frame version {frame_version}, not 1")
    record_type = RECORD_TYPES.get(type_id)
    if record_type is None:
        raise ProtocolError(f"a metadata record has the unknown type {type_id}{_NEWER}")
    if not record_type.MIN_VERSION <= version <= record_type.MAX_VERSION:
        raise ProtocolError(
            f"{record_type.__name__} has version {version}; known are "
            f"{record_type.MIN_VERSION} to {record_type.MAX_VERSION}{_NEWER}"
        )
    return record_type.decode(value, version, at)
