"""The records inside a batch: encode and decode.

The broker keeps out of here on its hot path. Who comes here: clients, compaction, a search by
timestamp inside one batch, the coordinators and the metadata log.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tidelog.protocol.compression import Compression, compress, decompress
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.record_batch import (
    BATCH_OVERHEAD,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
    TimestampType,
    check_crc,
    iterate_headers,
    pack_header,
    write_crc,
)
from tidelog.protocol.varint import encode_varint, read_varint

# What one batch may decompress to unless the caller says otherwise.
DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024

Headers = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class Record:
    """One record; `offset` is its place in the log, `timestamp` is in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=list)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
    last_offset_delta: int | None = None,
    delete_horizon_ms: int | None = None,
    compression_level: int | None = None,
) -> bytearray:
    """One batch of `records`, whose offsets must rise and be at least `base_offset`.

    Offsets may have gaps, and `last_offset_delta` may reach past the last record, as compaction
    leaves them. `delete_horizon_ms` takes the place of the base timestamp.
    """
    timestamps = [record.timestamp for record in records]
    base_timestamp = timestamps[0] if timestamps else NO_TIMESTAMP
    attributes = int(compression)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_MASK
    if is_transactional:
        attributes |= TRANSACTIONAL_MASK
    if is_control:
        attributes |= CONTROL_MASK
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_MASK
        base_timestamp = delete_horizon_ms
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset - base_offset if records else 0
    body = compress(
        compression, _encode_records(records, base_offset, base_timestamp), compression_level
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=BATCH_OVERHEAD - LOG_OVERHEAD + len(body),
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max(timestamps, default=NO_TIMESTAMP),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    batch = bytearray(pack_header(header))
    batch += body
    write_crc(batch, 0, len(batch))
    return batch


def _encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    out: list[bytes] = []
    for record in records:
        parts = [
            b"\x00",
            encode_varint(record.timestamp - base_timestamp),
            encode_varint(record.offset - base_offset),
        ]
        _append_bytes(parts, record.key)
        _append_bytes(parts, record.value)
        parts.append(encode_varint(len(record.headers)))
        for name, value in record.headers:
            _append_bytes(parts, name.encode())
            _append_bytes(parts, value)
        body = b"".join(parts)
        out.append(encode_varint(len(body)))
        out.append(body)
    return b"".join(out)


def _append_bytes(parts: list[bytes], value: bytes | None) -> None:
    if value is None:
        parts.append(b"\x01")
    else:
        parts.append(encode_varint(len(value)))
        parts.append(value)


def records_section(
    batch: Buffer, header: BatchHeader, limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The encoded records of the batch at the start of `batch`, decompressed."""
    section = memoryview(batch)[BATCH_OVERHEAD : header.size_bytes]
    return decompress(header.compression, section, limit_bytes)


def decode_records(
    batch: Buffer, header: BatchHeader, limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """The records of the batch at the start of `batch`; about 1.5 µs each.

    Their timestamps are the batch's append time where it has one. ApiError(INVALID_RECORD) if the
    records are not what the header says; the CRC is not checked here.
    """
    data = records_section(batch, header, limit_bytes)
    base_timestamp: int = header.base_timestamp
    append_time = (
        header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    )
    base_offset = header.base_offset
    records: list[Record] = []
    at = 0
    try:
        for _ in range(header.record_count):
            length, at = read_varint(data, at)
            end = at + length
            # One byte of attributes, which no version uses yet.
            delta, at = read_varint(data, at + 1)
            offset_delta, at = read_varint(data, at)
            # Null, the commonest key, is worth the shortcut.
            if data[at] == 1:
                key, at = None, at + 1
            else:
                key, at = _read_bytes(data, at)
            value, at = _read_bytes(data, at)
            headers: Headers = []
            if data[at]:
                headers, at = _read_headers(data, at, end)
            else:
                at += 1
            if at != end or length < 0:
                raise ProtocolError(f"a record of {length} bytes ends {end - at} bytes off")
            timestamp = base_timestamp + delta if append_time is None else append_time
            records.append(Record(base_offset + offset_delta, timestamp, key, value, headers))
    except (IndexError, UnicodeDecodeError, ProtocolError) as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"record {len(records)}: {error}") from None
    if at != len(data) or header.record_count < 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records fill {at} of {len(data)} bytes",
        )
    return records


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length < 0:
        return None, at
    end = at + length
    if end > len(data):
        raise ProtocolError(f"a field of {length} bytes passes the end")
    return data[at:end], end


def _read_headers(data: bytes, at: int, end: int) -> tuple[Headers, int]:
    count, at = read_varint(data, at)
    if not 0 <= count <= end - at:
        raise ProtocolError(f"{count} headers in {end - at} bytes")
    headers: Headers = []
    for _ in range(count):
        name, at = _read_bytes(data, at)
        if name is None:
            raise ProtocolError("a header has no name")
        value, at = _read_bytes(data, at)
        headers.append((name.decode(), value))
    return headers, at


def decode_batches(
    view: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Every whole batch of fetched data, its CRC checked; a last batch cut off is left out."""
    view = memoryview(view)
    for at, header in iterate_headers(view, allow_partial=True):
        check_crc(view, at, header.size_bytes)
        yield header, decode_records(view[at:], header, limit_bytes)
