"""What compaction leaves of one batch.

The offsets, sequence numbers and epochs of a batch never change: records are cut out of it, and
the batch keeps its first and last offset. A batch that loses nothing is passed on as it is. Records
that stay are copied as bytes, without being decoded, except when the batch gets a delete horizon:
that replaces its base timestamp, which the timestamps of its records are relative to.

The delete horizon is the time from which tombstones in the batch may go. It is set by the first
pass that meets them, so that a reader who starts from the beginning has `delete.retention.ms` to
see each tombstone, however late compaction came.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from tidelog.protocol.compression import compress
from tidelog.protocol.record_batch import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    pack_header,
    write_crc,
)
from tidelog.protocol.records import records_section
from tidelog.protocol.varint import encode_varint, read_varint
from tidelog.storage.compaction.cleaned_transactions import CleanedTransactions
from tidelog.storage.compaction.key_offsets import KeyOffsets
from tidelog.storage.segment.transaction_index import AbortedTransaction

# Batches come from our own log, where their size was checked on the way in: this only stops a
# broken frame from taking all memory.
DECOMPRESSED_BYTES_MAX = 1 << 30

_CONTROL_KEY = Struct(">hh")


class LastRecord(NamedTuple):
    """The newest thing an active producer wrote: its last data offset, or None after a marker."""

    last_data_offset: int | None
    producer_epoch: int


class WalkedRecord(NamedTuple):
    """Where one record lies in the (decompressed) records of its batch."""

    start: int
    end: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def walk_records(data: bytes, count: int) -> list[WalkedRecord]:
    """Finds the records of a batch; about a microsecond a record, nothing but the key is copied.

    Raises IndexError or ValueError when the bytes are not `count` records."""
    records = []
    make = WalkedRecord._make
    at = 0
    for _ in range(count):
        start = at
        byte = data[at]
        if byte < 0x80:
            length = byte >> 1
            at += 1
        else:
            length, at = read_varint(data, at)
        end = at + length
        at += 1  # attributes
        while data[at] >= 0x80:  # timestamp delta
            at += 1
        at += 1
        byte = data[at]
        if byte < 0x80:
            delta = byte >> 1
            at += 1
        else:
            delta, at = read_varint(data, at)
        byte = data[at]
        if byte < 0x80 and not byte & 1:
            key_length = byte >> 1
            at += 1
        else:
            key_length, at = read_varint(data, at)
        key = None
        if key_length >= 0:
            key = data[at : at + key_length]
            at += key_length
        has_value = data[at] != 1  # the zigzag form of -1
        if end > len(data) or length <= 0:
            raise ValueError(f"a record ends at {end} of {len(data)} bytes")
        records.append(make((start, end, delta, key, has_value)))
        at = end
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the last of {count} records")
    return records


def batch_records(batch: memoryview, header: BatchHeader) -> bytes:
    """The records of a batch as one piece of bytes, decompressed."""
    return records_section(batch, header, DECOMPRESSED_BYTES_MAX)


def control_type(batch: memoryview, header: BatchHeader) -> int | None:
    """The type of a control batch's record; None for a batch emptied by an earlier pass."""
    if header.record_count == 0:
        return None
    key = walk_records(batch_records(batch, header), header.record_count)[0].key
    if key is None:
        raise ValueError("a control record has no key")
    return int(_CONTROL_KEY.unpack_from(key)[1])


class BatchFilter:
    """Decides, batch by batch in offset order, what one pass over a log keeps."""

    __slots__ = (
        "_delete_horizon_ms",
        "_keys",
        "_last_records",
        "_now_ms",
        "_transactions",
        "records_read",
        "records_retained",
        "retained_aborts",
    )

    def __init__(
        self,
        keys: KeyOffsets,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._last_records = last_records
        self._now_ms = now_ms
        self._delete_horizon_ms = now_ms + delete_retention_ms
        self.retained_aborts: list[AbortedTransaction] = []
        """Entries for the transaction index of the segment being written; taken by the caller."""
        self.records_read = 0
        self.records_retained = 0

    def retain(
        self, batch: memoryview, header: BatchHeader, *, keep_offsets: bool
    ) -> memoryview | bytes | None:
        """The batch as it stays in the log, or None when nothing of it stays.

        With `keep_offsets` at least an empty batch stays, to hold the place of its offsets."""
        self.records_read += header.record_count
        is_obsolete = self._is_obsolete(batch, header)
        empty = self._emptied(header) if keep_offsets or self._is_last_of_producer(header) else None
        if header.record_count == 0:
            return empty
        if header.is_control:
            return self._retain_marker(batch, header, is_obsolete, empty)
        if is_obsolete:
            return empty
        return self._retain_data(batch, header, empty)

    def _is_obsolete(self, batch: memoryview, header: BatchHeader) -> bool:
        """Whether no reader needs the batch: aborted data, or a marker without any data."""
        if not header.is_control:
            return self._transactions.on_data_batch(header)
        obsolete, entry = self._transactions.on_marker(header, control_type(batch, header))
        if entry is not None:
            self.retained_aborts.append(entry)
        return obsolete

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether an active producer's sequence or epoch would be forgotten with this batch."""
        if header.producer_id < 0:
            return False
        last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset is not None:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _retain_marker(
        self, batch: memoryview, header: BatchHeader, is_obsolete: bool, empty: bytes | None
    ) -> memoryview | bytes | None:
        if not is_obsolete:
            self.records_retained += 1
            return batch
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is not None:
            if horizon_ms <= self._now_ms:
                return empty
            self.records_retained += 1
            return batch
        data = batch_records(batch, header)
        records = walk_records(data, header.record_count)
        self.records_retained += len(records)
        return _rebuilt(header, data, records, self._delete_horizon_ms)

    def _retain_data(
        self, batch: memoryview, header: BatchHeader, empty: bytes | None
    ) -> memoryview | bytes | None:
        data = batch_records(batch, header)
        horizon_ms = header.delete_horizon_ms
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        base_offset = header.base_offset
        keys = self._keys
        mapped_to = keys.latest_offset
        retained = []
        has_tombstones = False
        for record in walk_records(data, header.record_count):
            _, _, delta, key, has_value = record
            offset = base_offset + delta
            if offset <= mapped_to and (
                key is None or offset < keys.get(key) or not (has_value or keeps_tombstones)
            ):
                continue
            retained.append(record)
            if not has_value:
                has_tombstones = True
        if not retained:
            return empty
        self.records_retained += len(retained)
        sets_horizon = has_tombstones and horizon_ms is None
        if len(retained) == header.record_count and not sets_horizon:
            return batch
        return _rebuilt(header, data, retained, self._delete_horizon_ms if sets_horizon else None)

    @staticmethod
    def _emptied(header: BatchHeader) -> bytes:
        """A batch of no records that keeps the offsets, the producer and its sequence."""
        return _packed(
            header._replace(
                attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK),
                base_timestamp=NO_TIMESTAMP,
                record_count=0,
            ),
            b"",
        )


def _rebuilt(
    header: BatchHeader,
    data: bytes,
    records: list[WalkedRecord],
    delete_horizon_ms: int | None,
) -> bytes:
    """The batch with only `records` of `data` in it, and with a new delete horizon if given."""
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_MASK
        base_timestamp = delete_horizon_ms
    shift = header.base_timestamp - base_timestamp
    pieces = []
    max_delta: int | None = None
    for record in records:
        delta, before, after = _timestamp_delta(data, record)
        max_delta = delta if max_delta is None else max(max_delta, delta)
        if shift == 0:
            pieces.append(data[record.start : record.end])
        else:
            body = (
                data[before - 1 : before]  # the record's attributes
                + encode_varint(delta + shift)
                + data[after : record.end]
            )
            pieces.append(encode_varint(len(body)) + body)
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME and max_delta is not None:
        max_timestamp = header.base_timestamp + max_delta
    return _packed(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=len(records),
        ),
        compress(header.compression, b"".join(pieces)),
    )


def _timestamp_delta(data: bytes, record: WalkedRecord) -> tuple[int, int, int]:
    """A record's timestamp delta, where it starts and where it ends."""
    _, at = read_varint(data, record.start)
    before = at + 1
    delta, after = read_varint(data, before)
    return delta, before, after


def _packed(header: BatchHeader, payload: bytes) -> bytes:
    """The batch of `header` and the given records section, with its length and checksum set."""
    size_bytes = BATCH_OVERHEAD + len(payload)
    batch = bytearray(pack_header(header._replace(batch_length=size_bytes - LOG_OVERHEAD)))
    batch += payload
    write_crc(batch, 0, size_bytes)
    return bytes(batch)
