"""How a metadata record lies in the log.

A record's value is the frame version (1), the record's type and its version, each an unsigned
varint, and then the message. Its key is always null.
"""

from __future__ import annotations

from tidelog.cluster.records import brokers, log_control, security, settings, topics
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.schema import Message
from tidelog.protocol.varint import encode_uvarint, read_uvarint

FRAME_VERSION = 1

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
        topics.PartitionChangeRecord,
        topics.PartitionRecord,
        topics.RemoveTopicRecord,
        topics.TopicRecord,
    )
}

# From which metadata.version on a record is written in which version; the last that fits counts.
_VERSIONS: dict[int, tuple[tuple[int, int], ...]] = {
    brokers.RegisterBrokerRecord.API_KEY: ((7, 1), (8, 2), (17, 3)),
    topics.PartitionRecord.API_KEY: ((17, 1), (23, 2)),
    topics.PartitionChangeRecord.API_KEY: ((17, 1), (23, 2)),
}


def record_version(record: Message, metadata_version: int) -> int:
    """The version in which a cluster at `metadata_version` writes the record."""
    if isinstance(record, brokers.BrokerRegistrationChangeRecord):
        # Kafka takes the oldest version that can say it.
        return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
    version = 0
    for since, candidate in _VERSIONS.get(record.API_KEY, ()):
        if metadata_version >= since:
            version = candidate
    return version


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
        raise ProtocolError(f"a metadata record has the unknown type {type_id}")
    if not record_type.MIN_VERSION <= version <= record_type.MAX_VERSION:
        raise ProtocolError(
            f"{record_type.__name__} has version {version}; known are "
            f"{record_type.MIN_VERSION} to {record_type.MAX_VERSION}"
        )
    return record_type.decode(value, version, at)
