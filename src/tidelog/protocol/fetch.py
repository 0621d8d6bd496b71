"""Fetch by hand: requests decoded into plain tuples, responses that leave the records in the file.

    decode_fetch_request(body, version, at=0) -> FetchData
        .replica_id, .replica_epoch, .max_wait_ms, .min_bytes, .max_bytes, .isolation_level,
        .session_id, .session_epoch, .rack_id, .cluster_id,
        .topics: [(name or topic id, [FetchPartition, ...]), ...]
        .forgotten: [(name or topic id, [partition, ...]), ...]
        The key of a topic is its name (str) up to version 12, its id (16 bytes) from 13 on.

    encode_fetch_response(version, correlation_id, throttle_ms, error_code, session_id, topics,
        node_endpoints=()) -> list of buffers and record ranges, in the order of the wire
        topics: [(name or topic id, [FetchedPartition, ...]), ...], keyed as in the request
        A row has `records` (whatever the connection can send: bytes, a range of a file; None for
        nothing) and `records_size`, its length in bytes. `records` goes into the list as it is.
        The first buffer starts with the length of the whole frame and the response header.

`protocol.apis.fetch` declares the same messages for clients and followers, and is the oracle in
the tests. Cost for one partition: 3.5 µs to decode, 2 µs to encode.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.produce import NodeEndpoint, TopicKey, encode_endpoints_tag
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.protocol.varint import encode_uvarint, read_uvarint

FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13
MIN_VERSION = 4
MAX_VERSION = 18

# What a replica says that does not report its high watermark.
HIGH_WATERMARK_UNSUPPORTED = 2**63 - 1


class FetchPartition(NamedTuple):
    """What a client or follower wants of one partition."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = HIGH_WATERMARK_UNSUPPORTED


class FetchData:
    """A Fetch request."""

    __slots__ = (
        "cluster_id",
        "forgotten",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
        "topics",
    )

    def __init__(
        self,
        numbers: tuple[int, int, int, int, int, int, int],
        topics: list[tuple[TopicKey, list[FetchPartition]]],
        forgotten: list[tuple[TopicKey, list[int]]],
        rack_id: str,
    ) -> None:
        (
            self.replica_id,
            self.max_wait_ms,
            self.min_bytes,
            self.max_bytes,
            self.isolation_level,
            self.session_id,
            self.session_epoch,
        ) = numbers
        self.replica_epoch = -1
        self.cluster_id: str | None = None
        self.topics = topics
        self.forgotten = forgotten
        self.rack_id = rack_id


class FetchedPartition(NamedTuple):
    """One row of the answer.

    `aborted_transactions` is None for readers of uncommitted data, else (producer id, first
    offset) in order of offset; `diverging_epoch` is (epoch, end offset), `current_leader` (leader
    id, leader epoch), `snapshot_id` (end offset, epoch).
    """

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: object | None = None
    records_size: int = 0
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    snapshot_id: tuple[int, int] | None = None


_UNTAGGED = (ZERO_UUID, HIGH_WATERMARK_UNSUPPORTED)
_INT16 = struct.Struct(">h").unpack_from
_INT32 = struct.Struct(">i").unpack_from
_HEAD_FROM_7 = struct.Struct(">iiiibii").unpack_from
_HEAD_FROM_4 = struct.Struct(">iiiib").unpack_from
_HEAD_FROM_15 = struct.Struct(">iiibii").unpack_from
_PARTITION_FROM_12 = struct.Struct(">iiqiqi").unpack_from
_PARTITION_FROM_9 = struct.Struct(">iiqqi").unpack_from
_PARTITION_FROM_5 = struct.Struct(">iqqi").unpack_from
_PARTITION_FROM_4 = struct.Struct(">iqi").unpack_from
_INT64 = struct.Struct(">q").unpack_from
_REPLICA_STATE = struct.Struct(">iq").unpack_from

_RESPONSE_HEAD = struct.Struct(">iixihi")
_CLASSIC_HEAD = struct.Struct(">iiihi")
_OLDEST_HEAD = struct.Struct(">iii")
_ROW = struct.Struct(">ihqqq")
_PLAIN_ROW = struct.Struct(">ihqqqxi")
_ROW_FROM_4 = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_ABORTED_FLEXIBLE = struct.Struct(">qqx")
_UINT32 = struct.Struct(">I")
_REPLICA_AND_SIZE = struct.Struct(">ii")


def decode_fetch_request(body: memoryview, version: int, at: int = 0) -> FetchData:
    """The request that fills `body` from `at`; ProtocolError if it is malformed."""
    try:
        if version >= FLEXIBLE_FROM:
            data, at = _decode_flexible(body, version, at)
        else:
            data, at = _decode_classic(body, version, at)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"FetchRequest v{version} is malformed: {error}") from None
    # Bytes after the end are let be, as Kafka does: clients have sent such.
    if at > len(body):
        raise ProtocolError(f"FetchRequest v{version} ends at {at} of {len(body)} bytes")
    return data


def _decode_flexible(body: memoryview, version: int, at: int) -> tuple[FetchData, int]:
    # A length beyond the end pushes `at` past it, where the next read or the caller's check fails.
    numbers: tuple[int, int, int, int, int, int, int]
    if version >= 15:
        numbers = (-1, *_HEAD_FROM_15(body, at))
        at += 21
    else:
        numbers = _HEAD_FROM_7(body, at)
        at += 25
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    count, at = _compact_count(body, at)
    for _ in range(count):
        topic, at = _topic_key(body, version, at)
        partition_count, at = _compact_count(body, at)
        partitions: list[FetchPartition] = []
        for _ in range(partition_count):
            fields = _PARTITION_FROM_12(body, at)
            if body[at + 32]:
                *tagged, at = _partition_tags(body, version, at + 32)
                fields += tuple(tagged)
            else:
                at += 33
                fields += _UNTAGGED
            partitions.append(tuple.__new__(FetchPartition, fields))
        topics.append((topic, partitions))
        at = at + 1 if not body[at] else _skip_tags(body, at)
    forgotten: list[tuple[TopicKey, list[int]]] = []
    rack_id = ""
    if body[at] == 1:  # nothing forgotten, as a rule
        at += 1
    else:
        forgotten, at = _forgotten(body, version, at)
    if body[at] == 1:  # no rack, as a rule
        at += 1
    else:
        length, at = _compact_count(body, at)
        rack_id = str(body[at : at + length], "utf-8")
        at += length
    data = FetchData(numbers, topics, forgotten, rack_id)
    return data, at + 1 if not body[at] else _request_tags(data, body, version, at)


def _forgotten(
    body: memoryview, version: int, at: int
) -> tuple[list[tuple[TopicKey, list[int]]], int]:
    forgotten: list[tuple[TopicKey, list[int]]] = []
    count, at = _compact_count(body, at)
    for _ in range(count):
        topic, at = _topic_key(body, version, at)
        partition_count, at = _compact_count(body, at)
        partitions = struct.unpack_from(f">{partition_count}i", body, at)
        at += 4 * partition_count
        forgotten.append((topic, list(partitions)))
        at = at + 1 if not body[at] else _skip_tags(body, at)
    return forgotten, at


def _compact_count(body: memoryview, at: int) -> tuple[int, int]:
    """A compact length that must not be null and must fit into what is left."""
    count = body[at]
    at += 1
    if count > 127:
        count, at = read_uvarint(body, at - 1)
    if not 0 < count <= len(body) - at + 1:
        raise ProtocolError(f"a length of {count - 1} in {len(body) - at} bytes")
    return count - 1, at


def _topic_key(body: memoryview, version: int, at: int) -> tuple[TopicKey, int]:
    if version >= TOPIC_IDS_FROM:
        return bytes(body[at : at + 16]), at + 16
    length, at = _compact_count(body, at)
    return str(body[at : at + length], "utf-8"), at + length


def _skip_tags(body: memoryview, at: int) -> int:
    count, at = read_uvarint(body, at)
    for _ in range(count):
        _, at = read_uvarint(body, at)
        size, at = read_uvarint(body, at)
        at += size
    return at


def _partition_tags(body: memoryview, version: int, at: int) -> tuple[bytes, int, int]:
    directory_id, high_watermark = ZERO_UUID, HIGH_WATERMARK_UNSUPPORTED
    count, at = read_uvarint(body, at)
    for _ in range(count):
        tag, at = read_uvarint(body, at)
        size, at = read_uvarint(body, at)
        if tag == 0 and version >= 17:
            _expect_size(size, 16, "ReplicaDirectoryId")
            directory_id = bytes(body[at : at + 16])
        elif tag == 1 and version >= 18:
            _expect_size(size, 8, "HighWatermark")
            (high_watermark,) = _INT64(body, at)
        at += size
    return directory_id, high_watermark, at


def _request_tags(data: FetchData, body: memoryview, version: int, at: int) -> int:
    count, at = read_uvarint(body, at)
    for _ in range(count):
        tag, at = read_uvarint(body, at)
        size, at = read_uvarint(body, at)
        end = at + size
        if tag == 0:
            length, at = read_uvarint(body, at)
            if length:
                data.cluster_id = str(body[at : at + length - 1], "utf-8")
                at += length - 1
            _expect_size(end - at, 0, "what follows ClusterId")
        elif tag == 1 and version >= 15:
            data.replica_id, data.replica_epoch = _REPLICA_STATE(body, at)
            at += 12
            at = at + 1 if not body[at] else _skip_tags(body, at)
            _expect_size(end - at, 0, "what follows ReplicaState")
        at = end
    return at


def _expect_size(size: int, expected: int, name: str) -> None:
    if size != expected:
        raise ProtocolError(f"{name} has {size} bytes, not {expected}")


def _decode_classic(body: memoryview, version: int, at: int) -> tuple[FetchData, int]:
    numbers: tuple[int, int, int, int, int, int, int]
    if version >= 7:
        numbers = _HEAD_FROM_7(body, at)
        at += 25
    else:
        numbers = (*_HEAD_FROM_4(body, at), 0, -1)
        at += 17
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    count, at = _classic_count(body, at)
    for _ in range(count):
        topic, at = _classic_string(body, at)
        partition_count, at = _classic_count(body, at)
        partitions: list[FetchPartition] = []
        for _ in range(partition_count):
            if version >= 9:
                index, epoch, offset, log_start, max_bytes = _PARTITION_FROM_9(body, at)
                at += 28
            elif version >= 5:
                index, offset, log_start, max_bytes = _PARTITION_FROM_5(body, at)
                epoch = -1
                at += 24
            else:
                index, offset, max_bytes = _PARTITION_FROM_4(body, at)
                epoch = log_start = -1
                at += 16
            partitions.append(FetchPartition(index, epoch, offset, -1, log_start, max_bytes))
        topics.append((topic, partitions))
    forgotten: list[tuple[TopicKey, list[int]]] = []
    rack_id = ""
    if version >= 7:
        count, at = _classic_count(body, at)
        for _ in range(count):
            topic, at = _classic_string(body, at)
            partition_count, at = _classic_count(body, at)
            indexes = struct.unpack_from(f">{partition_count}i", body, at)
            at += 4 * partition_count
            forgotten.append((topic, list(indexes)))
    if version >= 11:
        rack_id, at = _classic_string(body, at)
    return FetchData(numbers, topics, forgotten, rack_id), at


def _classic_count(body: memoryview, at: int) -> tuple[int, int]:
    (count,) = _INT32(body, at)
    at += 4
    if not 0 <= count <= len(body) - at:
        raise ProtocolError(f"{count} elements in {len(body) - at} bytes")
    return count, at


def _classic_string(body: memoryview, at: int) -> tuple[str, int]:
    (length,) = _INT16(body, at)
    at += 2
    if length < 0:
        raise ProtocolError("a string is null that must not be")
    return str(body[at : at + length], "utf-8"), at + length


def encode_fetch_response(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[TopicKey, Sequence[FetchedPartition]]],
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[object]:
    """The frame of an answer, as buffers with the records between them."""
    flexible = version >= FLEXIBLE_FROM
    # The length comes last, when it is known.
    if flexible:
        out = bytearray(_RESPONSE_HEAD.pack(0, correlation_id, throttle_ms, error_code, session_id))
    elif version >= 7:
        out = bytearray(_CLASSIC_HEAD.pack(0, correlation_id, throttle_ms, error_code, session_id))
    else:
        out = bytearray(_OLDEST_HEAD.pack(0, correlation_id, throttle_ms))
    first = out
    frame: list[object] = [out]
    size_bytes = -4
    out += encode_uvarint(len(topics) + 1) if flexible else _UINT32.pack(len(topics))
    for topic, rows in topics:
        out += _encode_topic(topic, flexible)
        out += encode_uvarint(len(rows) + 1) if flexible else _UINT32.pack(len(rows))
        for row in rows:
            out += _encode_row(row, version)
            if row.records is not None:
                size_bytes += len(out) + row.records_size
                out = bytearray()
                frame += (row.records, out)
            if flexible:
                out += _encode_row_tags(row)
        if flexible:
            out.append(0)
    if flexible:
        out += encode_endpoints_tag(node_endpoints if version >= 16 else ())
    size_bytes += len(out)
    _UINT32.pack_into(first, 0, size_bytes)
    if not out:
        frame.pop()
    return frame


def _encode_topic(topic: TopicKey, flexible: bool) -> bytes:
    if isinstance(topic, bytes):
        return topic
    raw = topic.encode()
    return (encode_uvarint(len(raw) + 1) if flexible else len(raw).to_bytes(2, "big")) + raw


def _encode_row(row: FetchedPartition, version: int) -> bytes:
    """A partition up to the length of its records. No records have length 0, never null."""
    aborted = row.aborted_transactions
    if version >= FLEXIBLE_FROM:
        length = encode_uvarint(row.records_size + 1)
        if aborted is None:
            return _PLAIN_ROW.pack(*row[:5], row.preferred_read_replica) + length
        transactions = b"".join(_ABORTED_FLEXIBLE.pack(*each) for each in aborted)
        replica = row.preferred_read_replica.to_bytes(4, "big", signed=True)
        return b"".join(
            (_ROW.pack(*row[:5]), encode_uvarint(len(aborted) + 1), transactions, replica, length)
        )
    head = _ROW.pack(*row[:5]) if version >= 5 else _ROW_FROM_4.pack(*row[:4])
    if aborted is None:
        between = b"\xff\xff\xff\xff"
    else:
        between = _UINT32.pack(len(aborted)) + b"".join(_ABORTED.pack(*each) for each in aborted)
    if version >= 11:
        tail = _REPLICA_AND_SIZE.pack(row.preferred_read_replica, row.records_size)
    else:
        tail = _UINT32.pack(row.records_size)
    return head + between + tail


def _encode_row_tags(row: FetchedPartition) -> bytes:
    if row.diverging_epoch is None and row.current_leader is None and row.snapshot_id is None:
        return b"\x00"
    tags = []
    if row.diverging_epoch is not None:
        tags.append(struct.pack(">BBiqx", 0, 13, *row.diverging_epoch))
    if row.current_leader is not None:
        tags.append(struct.pack(">BBiix", 1, 9, *row.current_leader))
    if row.snapshot_id is not None:
        tags.append(struct.pack(">BBqix", 2, 13, *row.snapshot_id))
    return bytes([len(tags)]) + b"".join(tags)
