"""Records in and out of batches, against the codecs of real clients."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import BatchHeader, TimestampType, read_header, stamp_append_time
from tidelog.protocol.records import Record, decode_batches, decode_records, encode_batch

optional_bytes = st.one_of(st.none(), st.binary(max_size=20), st.just(b"x" * 5000))
timestamps = st.integers(0, 2**45)
record_lists = st.lists(
    st.tuples(
        st.integers(1, 3),  # the step to this offset
        timestamps,
        optional_bytes,
        optional_bytes,
        st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


@given(record_lists, st.sampled_from(Compression), st.integers(0, 2**40))
def test_records_survive_a_round_trip(
    rows: list[tuple[Any, ...]], compression: Compression, base_offset: int
) -> None:
    records, offset = [], base_offset - 1
    for step, *fields in rows:
        offset += step
        records.append(Record(offset, *fields))
    batch = encode_batch(records, base_offset=base_offset, compression=compression)
    [(header, decoded)] = decode_batches(batch)
    assert decoded == records
    assert header.base_offset == base_offset
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp == max(record.timestamp for record in records)


@settings(max_examples=25)
@given(record_lists, st.sampled_from([0, 1, 2, 3, 4]))
def test_aiokafka_reads_what_we_write(rows: list[tuple[Any, ...]], codec: int) -> None:
    records = [Record(index, *fields) for index, (_, *fields) in enumerate(rows)]
    batch = DefaultRecordBatch(bytes(encode_batch(records, compression=Compression(codec))))
    assert batch.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    assert read == records


@settings(max_examples=25)
@given(record_lists, st.sampled_from([0, 1, 2, 3, 4]))
def test_we_read_what_aiokafka_writes(rows: list[tuple[Any, ...]], codec: int) -> None:
    records = [Record(index, *fields) for index, (_, *fields) in enumerate(rows)]
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**20,
    )
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, record.headers)
    [(_, decoded)] = decode_batches(builder.build())
    assert decoded == records


def test_the_append_time_of_a_batch_is_the_time_of_its_records() -> None:
    batch = encode_batch([Record(0, 1, None, b"a"), Record(1, 2, None, b"b")])
    stamp_append_time(batch, 0, 5000)
    [(header, decoded)] = decode_batches(batch)
    assert [record.timestamp for record in decoded] == [5000, 5000]
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_compaction_may_leave_gaps_no_records_and_a_delete_horizon() -> None:
    batch = encode_batch([], base_offset=40, last_offset_delta=9, producer_id=5, base_sequence=0)
    [(header, decoded)] = decode_batches(batch)
    assert (header.record_count, header.next_offset, decoded) == (0, 50, [])
    tombstone = Record(42, 900, b"k", None)
    horizon = encode_batch(
        [tombstone], base_offset=40, last_offset_delta=9, delete_horizon_ms=10**6
    )
    [(header, decoded)] = decode_batches(horizon)
    assert (header.delete_horizon_ms, header.max_timestamp) == (10**6, 900)
    assert decoded == [tombstone]


def test_readers_leave_out_a_last_batch_that_is_cut_off() -> None:
    batch = encode_batch([Record(0, 1, None, b"a")])
    assert len(list(decode_batches(batch + batch[:-1]))) == 1
    assert list(decode_batches(b"")) == []


def test_readers_check_the_crc() -> None:
    batch = encode_batch([Record(0, 1, None, b"a")])
    batch[-2] ^= 1
    with pytest.raises(ApiError) as caught:
        list(decode_batches(batch))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_records_that_differ_from_their_header_are_invalid() -> None:
    batch = encode_batch([Record(0, 1, b"key", b"value", [("h", b"x")]), Record(1, 2, None, b"")])
    header = read_header(batch, 0)

    def expect_invalid(data: bytes | bytearray, changed: BatchHeader) -> None:
        with pytest.raises(ApiError) as caught:
            decode_records(data, changed)
        assert caught.value.code is ErrorCode.INVALID_RECORD

    for count in (-1, 0, 1, 3, 2**31 - 1):
        expect_invalid(batch, header._replace(record_count=count))
    expect_invalid(batch, header._replace(batch_length=header.batch_length - 1))


@given(st.binary(max_size=80), st.integers(-1, 3), st.sampled_from(Compression))
def test_random_records_raise_only_api_errors(
    noise: bytes, count: int, compression: Compression
) -> None:
    batch = encode_batch([Record(0, 1, None, b"a")], compression=compression)
    header = read_header(batch, 0)
    damaged = batch[:61] + noise
    changed = header._replace(record_count=count, batch_length=len(damaged) - 12)
    codes = []
    try:
        decode_records(damaged, changed)
    except ApiError as error:
        codes.append(error.code)
    assert set(codes) <= {
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
    }


def test_a_small_batch_cannot_decompress_without_limit() -> None:
    for compression in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        batch = encode_batch([Record(0, 1, None, bytes(4_000_000))], compression=compression)
        assert len(batch) < 250_000
        with pytest.raises(ApiError) as caught:
            list(decode_batches(batch, limit_bytes=1_000_000))
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
