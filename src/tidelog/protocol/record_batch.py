"""Record batches (magic 2): the header, its check, and what the broker may change in place.

A batch is the unit of produce, storage and fetch. Its CRC-32C covers everything from the
attributes on, so the base offset and the leader epoch, which stand before it, can be stamped
without touching it. Bytes that are not a batch are an ApiError with Kafka's code: they fail one
partition of a request, never the connection.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode

# Base offset and length: what stands before the bytes that `batch_length` counts.
LOG_OVERHEAD = 12
BATCH_OVERHEAD = 61
MAGIC = 2

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_PARTITION_LEADER_EPOCH = -1

MAGIC_AT = 16
_LEADER_EPOCH_AT = 12
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43
_SEQUENCE_MAX = 2**31 - 1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")
_unpack_header = _HEADER.unpack_from
_pack_int64 = _INT64.pack_into
_pack_int32 = _INT32.pack_into

Buffer = bytes | bytearray | memoryview


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The 61 bytes before the records."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The codec of the records; ApiError if the attributes name none that exists."""
        try:
            return Compression(self.attributes & COMPRESSION_MASK)
        except ValueError:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"no compression has the number {self.attributes & COMPRESSION_MASK}",
            ) from None

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(bool(self.attributes & TIMESTAMP_TYPE_MASK))

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones of this batch; it then is the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; after 2^31 - 1 comes 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MAX


def _corrupt(message: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, message)


def _reject(view: Buffer, at: int) -> NoReturn:
    """Say why the bytes at `at` have no header of a batch."""
    if len(view) - at > MAGIC_AT:
        magic = view[at + MAGIC_AT]
        if magic < MAGIC:
            raise ApiError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"message format {magic} is not supported, only record batches (magic {MAGIC}):"
                " use a client of Kafka 0.11 or later",
            )
        if magic > MAGIC:
            raise _corrupt(f"a batch has the unknown magic {magic}")
    raise _corrupt(f"{len(view) - at} bytes are too few for a batch")


def read_header(view: Buffer, at: int) -> BatchHeader:
    """The header at `at` (0.5 µs); whether its records follow in `view` is not checked."""
    if len(view) - at < BATCH_OVERHEAD or view[at + MAGIC_AT] != MAGIC:
        _reject(view, at)
    header: BatchHeader = tuple.__new__(BatchHeader, _unpack_header(view, at))
    if header[1] < BATCH_OVERHEAD - LOG_OVERHEAD:
        raise _corrupt(f"a batch has the length {header[1]}, less than its header")
    return header


def iterate_headers(
    view: Buffer, *, allow_partial: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """The position and header of each batch in `view`.

    A last batch that is cut off is an error, or, for a reader of fetched data, the end.
    """
    at, size = 0, len(view)
    while at < size:
        if allow_partial and size - at < BATCH_OVERHEAD:
            return
        header = read_header(view, at)
        end = at + LOG_OVERHEAD + header[1]
        if end > size:
            if allow_partial:
                return
            raise _corrupt(f"a batch of {end - at} bytes has only {size - at}")
        yield at, header
        at = end


def compute_crc(view: Buffer, at: int, size_bytes: int) -> int:
    """The CRC-32C of the batch of `size_bytes` at `at`."""
    checksum: int = crc32c(memoryview(view)[at + _ATTRIBUTES_AT : at + size_bytes])
    return checksum


def check_crc(view: Buffer, at: int, size_bytes: int) -> None:
    """ApiError(CORRUPT_MESSAGE) unless the batch has the checksum that its header says."""
    (expected,) = _UINT32.unpack_from(view, at + _CRC_AT)
    computed = compute_crc(view, at, size_bytes)
    if computed != expected:
        raise _corrupt(f"a batch has the CRC {computed:#010x} but says {expected:#010x}")


def write_crc(buffer: bytearray | memoryview, at: int, size_bytes: int) -> None:
    """Put the right CRC into the batch of `size_bytes` at `at`."""
    _UINT32.pack_into(buffer, at + _CRC_AT, compute_crc(buffer, at, size_bytes))


def stamp(
    buffer: bytearray | memoryview, at: int, base_offset: int, partition_leader_epoch: int
) -> None:
    """Give the batch at `at` its place in the log; its CRC stays valid (0.2 µs)."""
    _pack_int64(buffer, at, base_offset)
    _pack_int32(buffer, at + _LEADER_EPOCH_AT, partition_leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, at: int, timestamp_ms: int) -> None:
    """Make `timestamp_ms` the time of every record of the batch at `at`, and redo its CRC."""
    header = read_header(buffer, at)
    _INT16.pack_into(buffer, at + _ATTRIBUTES_AT, header.attributes | TIMESTAMP_TYPE_MASK)
    _pack_int64(buffer, at + _MAX_TIMESTAMP_AT, timestamp_ms)
    write_crc(buffer, at, header.size_bytes)


def stamp_producer(
    buffer: bytearray | memoryview,
    at: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    is_transactional: bool,
) -> None:
    """Make the batch at `at` one of a producer, and redo its CRC."""
    header = read_header(buffer, at)
    attributes = header.attributes & ~TRANSACTIONAL_MASK
    if is_transactional:
        attributes |= TRANSACTIONAL_MASK
    _INT16.pack_into(buffer, at + _ATTRIBUTES_AT, attributes)
    _PRODUCER.pack_into(buffer, at + _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    write_crc(buffer, at, header.size_bytes)


def pack_header(header: BatchHeader) -> bytes:
    """The 61 bytes of a header, its CRC as it is."""
    return _HEADER.pack(*header)
