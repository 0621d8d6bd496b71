"""Logs of record batches as a broker would send them, and what a reader must make of them."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tidelog.protocol.compression import Compression
from tidelog.protocol.record_batch import TimestampType
from tidelog.protocol.records import Record, decode_batches, encode_batch
from tidelog.spark.decode import AbortedTransactions, FetchedBatches, RangeDecoder
from tidelog.spark.decode.decoder import BLOCK_BYTES
from tidelog.spark.offsets import OffsetRange

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS_MAX = 253_402_300_799_999  # the end of the year 9999, which Python's datetime still knows

Row = dict[str, Any]

fields = st.none() | st.binary(max_size=40) | st.binary(min_size=100, max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=8)), max_size=3)
timestamps = st.sampled_from([-1, 0, 1_700_000_000_000, MS_MAX]) | st.integers(-1, MS_MAX)


@st.composite
def logs(draw: st.DrawFn, *, batches_max: int = 6) -> bytes:
    """Batches of every compression and timestamp type, with the gaps that compaction leaves."""
    out = bytearray()
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, batches_max))):
        offset += draw(st.integers(0, 3))
        base_offset = offset
        records = []
        for _ in range(draw(st.integers(0, 12))):
            offset += draw(st.sampled_from([0, 0, 0, 1, 200]))
            records.append(
                Record(offset, draw(timestamps), draw(fields), draw(fields), draw(headers))
            )
            offset += 1
        offset = max(offset + draw(st.integers(0, 2)), base_offset + 1)
        is_control = draw(st.integers(0, 9)) == 0
        out += encode_batch(
            records,
            base_offset=base_offset,
            compression=draw(st.sampled_from(list(Compression))) if records else Compression.NONE,
            timestamp_type=draw(st.sampled_from(list(TimestampType))),
            is_control=is_control,
            last_offset_delta=offset - 1 - base_offset,
        )
    return bytes(out)


def expected_rows(log: bytes, wanted: OffsetRange) -> list[Row]:
    """The rows of a log by the plain decoder."""
    rows = []
    for header, records in decode_batches(log):
        if header.is_control:
            continue
        for record in records:
            if wanted.start <= record.offset < wanted.end:
                rows.append(row_of(record, wanted, header.timestamp_type))
    return rows


def row_of(record: Record, wanted: OffsetRange, timestamp_type: TimestampType) -> Row:
    return {
        "key": record.key,
        "value": record.value,
        "topic": wanted.topic,
        "partition": wanted.partition,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": int(timestamp_type),
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }


def decode(
    responses: Iterable[bytes],
    wanted: OffsetRange,
    *,
    include_headers: bool = True,
    rows_max: int = 20_000,
    bytes_max: int = 64 * 1024 * 1024,
    block_bytes: int = BLOCK_BYTES,
    aborted: Iterable[tuple[int, int]] = (),
) -> list[pa.RecordBatch]:
    """The Arrow batches of some responses, each checked in full."""
    decoder = RangeDecoder(
        wanted,
        include_headers=include_headers,
        rows_max=rows_max,
        bytes_max=bytes_max,
        block_bytes=block_bytes,
    )
    batches = list(_decode(decoder, responses, list(aborted), wanted.start))
    for batch in batches:
        batch.validate(full=True)
    return batches


def _decode(
    decoder: RangeDecoder, responses: Iterable[bytes], aborted: list[tuple[int, int]], start: int
) -> Iterator[pa.RecordBatch]:
    for response in responses:
        batches = FetchedBatches(memoryview(response))
        yield from decoder.add(batches, AbortedTransactions(aborted), start)
    yield from decoder.finish()


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [row for batch in batches for row in batch.to_pylist()]
