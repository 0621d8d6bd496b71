"""What classic consumers put into the opaque bytes of JoinGroup and SyncGroup.

Each blob is an int16 version followed by the message. A version newer than ours is read as our
newest: later versions only add fields at the end.
"""

from __future__ import annotations

from struct import Struct as PackedStruct

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.schema import BYTES, INT32, STRING, Array, Message, Struct, field

PROTOCOL_TYPE = "consumer"

_VERSION = PackedStruct(">h")


class TopicPartitions(Struct):
    topic: str = field(STRING, "0+")
    partitions: list[int] = field(Array(INT32), "0+")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = field(Array(STRING), "0+")
    user_data: bytes | None = field(BYTES, "0+", nullable="0+", default=None)
    owned_partitions: list[TopicPartitions] = field(Array(TopicPartitions), "1+")
    generation_id: int = field(INT32, "2+", default=-1)
    rack_id: str | None = field(STRING, "3+", nullable="3+", default=None)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[TopicPartitions] = field(Array(TopicPartitions), "0+")
    user_data: bytes | None = field(BYTES, "0+", nullable="0+", default=None)


def blob_version(data: bytes) -> int:
    if len(data) < 2:
        raise ProtocolError("consumer protocol bytes without a version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise ProtocolError(f"consumer protocol version {version} is negative")
    return int(version)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    version = min(blob_version(data), ConsumerProtocolSubscription.MAX_VERSION)
    return ConsumerProtocolSubscription.decode_prefix(data, version, 2)[0]


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    version = min(version, ConsumerProtocolSubscription.MAX_VERSION)
    return _VERSION.pack(version) + subscription.encode(version)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """The empty blob, which a member without an assignment has, is an empty assignment."""
    if not data:
        return ConsumerProtocolAssignment()
    version = min(blob_version(data), ConsumerProtocolAssignment.MAX_VERSION)
    return ConsumerProtocolAssignment.decode_prefix(data, version, 2)[0]


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    version = min(version, ConsumerProtocolAssignment.MAX_VERSION)
    return _VERSION.pack(version) + assignment.encode(version)
