import itertools
import random
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from tests.spark.decode.logs import decode, expected_rows, logs, rows_of
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError
from tidelog.protocol.record_batch import (
    BATCH_OVERHEAD,
    TimestampType,
    iterate_headers,
    write_crc,
)
from tidelog.protocol.records import Record, decode_records, encode_batch
from tidelog.spark.decode import FetchedBatches, RangeDecoder
from tidelog.spark.errors import SparkError
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.schema import arrow_schema, spark_schema

ALL = OffsetRange("orders", 7, 0, 2**62)
BASE_TIMESTAMP_AT = 27


@given(log=logs(), data=st.data())
def test_rows_are_those_of_the_plain_decoder(log: bytes, data: st.DataObject) -> None:
    headers = [header for _, header in iterate_headers(log)]
    first = headers[0].base_offset if headers else 0
    last = headers[-1].next_offset if headers else 0
    start = data.draw(st.integers(max(0, first - 1), last + 1))
    wanted = OffsetRange("orders", 7, start, data.draw(st.integers(start, last + 2)))
    rows_max = data.draw(st.sampled_from([1, 2, 7, 1000]))
    bytes_max = data.draw(st.sampled_from([1, 200, 1_000_000]))
    block_bytes = data.draw(st.sampled_from([1, 300, 1_000_000]))
    batches = decode([log], wanted, rows_max=rows_max, bytes_max=bytes_max, block_bytes=block_bytes)
    assert rows_of(batches) == expected_rows(log, wanted)
    assert all(batch.schema.equals(arrow_schema(True)) for batch in batches)
    assert all(0 < batch.num_rows <= rows_max for batch in batches)


@given(log=logs(), cut=st.integers(0, 10_000))
def test_responses_are_put_together(log: bytes, cut: int) -> None:
    ends = [at + header.size_bytes for at, header in iterate_headers(log)]
    middle = ends[cut % len(ends)] if ends else 0
    # What follows the last whole batch of a response is left for the next.
    first, second = log[: middle + cut % 61], log[middle:]
    batches = decode([first, second], ALL, include_headers=False)
    expected = expected_rows(log, ALL)
    for row in expected:
        del row["headers"]
    assert rows_of(batches) == expected
    assert len(batches) <= 1
    assert all(batch.schema.equals(arrow_schema(False)) for batch in batches)


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_schema_is_what_spark_asks_for(include_headers: bool) -> None:
    wanted = to_arrow_schema(spark_schema(include_headers), timezone="UTC")
    assert arrow_schema(include_headers).equals(wanted, check_metadata=True)


def test_small_batches_are_gathered_and_large_ones_split() -> None:
    small = b"".join(
        encode_batch([Record(offset, 0, None, b"x")], base_offset=offset) for offset in range(90)
    )
    large = encode_batch(
        [Record(offset, 0, None, b"y") for offset in range(90, 200)], base_offset=90
    )
    batches = decode([small, bytes(large)], ALL, rows_max=64)
    assert [batch.num_rows for batch in batches] == [64, 64, 64, 8]
    assert [row["offset"] for row in rows_of(batches)] == list(range(200))


def test_data_of_an_arrow_batch_is_bounded() -> None:
    records = [Record(offset, 0, b"k" * 10, b"v" * 1000) for offset in range(100)]
    log = bytes(encode_batch(records, compression=Compression.ZSTD))
    batches = decode([log], ALL, bytes_max=10_500)
    assert {batch.num_rows for batch in batches} == {10}
    # A record that is larger by itself comes alone.
    assert [batch.num_rows for batch in decode([log], ALL, bytes_max=50)] == [1] * 100


def test_headers_count_for_the_size_of_an_arrow_batch() -> None:
    records = [Record(offset, 0, None, b"", [("", None)] * 500) for offset in range(20)]
    batches = decode([bytes(encode_batch(records))], ALL, bytes_max=5100)
    assert [batch.num_rows for batch in batches] == [5] * 4


def test_append_time_is_the_time_of_every_record() -> None:
    records = [Record(offset, 1000 + offset, None, b"x") for offset in range(3)]
    log = encode_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    (batch,) = decode([bytes(log)], ALL)
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [1_002_000] * 3
    assert batch["timestampType"].to_pylist() == [1] * 3


@pytest.mark.parametrize(
    ("timestamp_ms", "microseconds"),
    [
        (-1, -1000),
        (9_223_372_036_854_775, 9_223_372_036_854_775_000),
        (9_223_372_036_854_776, None),
        (2**63 - 1, None),
        (-(2**63), None),
    ],
)
def test_a_timestamp_that_has_no_microseconds_is_null(
    timestamp_ms: int, microseconds: int | None
) -> None:
    log = encode_batch([Record(0, 0, None, b"x"), Record(1, timestamp_ms, None, b"x")])
    (batch,) = decode([bytes(log)], ALL)
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [0, microseconds]


def test_a_sum_of_timestamps_beyond_64_bits_is_null() -> None:
    log = encode_batch([Record(0, 0, None, b"x"), Record(1, 2**62, None, b"x")])
    struct.pack_into(">q", log, BASE_TIMESTAMP_AT, 2**62)
    write_crc(log, 0, len(log))
    (batch,) = decode([bytes(log)], ALL)
    assert batch["timestamp"].to_pylist() == [None, None]


def test_a_wrong_checksum_names_the_batch() -> None:
    log = encode_batch([Record(5, 0, None, b"hello")], base_offset=5)
    log[-2] ^= 1
    with pytest.raises(SparkError, match=r"orders-7: .*offsets 5 to 5 .*CRC"):
        decode([bytes(log)], ALL)


def test_a_header_name_that_is_not_text_is_refused() -> None:
    log = encode_batch([Record(5, 0, None, b"x", [("é", b"")])], base_offset=5)
    at = log.index("é".encode())
    log[at] = 0xFF
    write_crc(log, 0, len(log))
    with pytest.raises(SparkError, match=r"orders-7: .*offset.* 5 .*UTF-8"):
        decode([bytes(log)], ALL)
    assert decode([bytes(log)], ALL, include_headers=False)[0].num_rows == 1


def test_a_count_of_records_that_cannot_be_is_refused() -> None:
    log = encode_batch([Record(0, 0, None, b"x")])
    struct.pack_into(">i", log, BATCH_OVERHEAD - 4, 2**31 - 1)
    write_crc(log, 0, len(log))
    with pytest.raises(SparkError, match="record 1: a number in it is malformed"):
        decode([bytes(log)], ALL)
    struct.pack_into(">i", log, BATCH_OVERHEAD - 4, -5)
    write_crc(log, 0, len(log))
    with pytest.raises(SparkError, match="its header says that it has -5 records"):
        decode([bytes(log)], ALL)


def test_bytes_in_a_batch_without_records_are_refused() -> None:
    log = encode_batch([Record(0, 0, None, b"x")])
    struct.pack_into(">i", log, BATCH_OVERHEAD - 4, 0)
    write_crc(log, 0, len(log))
    with pytest.raises(SparkError, match="bytes follow the last record"):
        decode([bytes(log)], ALL)


def test_malformed_records_are_refused_and_never_read_beyond() -> None:
    """Whatever the bytes: an error, or the rows that the plain decoder finds."""
    rng = random.Random(20)
    refused = 0
    for _ in range(1500):
        records = [
            Record(
                offset,
                rng.choice([0, 2**40]),
                rng.choice([None, b"", rng.randbytes(20)]),
                rng.choice([None, rng.randbytes(rng.choice([3, 70, 200]))]),
                [("name", rng.choice([None, b"value"]))] * rng.randrange(3),
            )
            for offset in range(rng.randrange(1, 5))
        ]
        log = encode_batch(records)
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(BATCH_OVERHEAD, len(log))
            log[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)])
        write_crc(log, 0, len(log))
        _, header = next(iterate_headers(log))
        try:
            decoded = decode_records(log, header)
        except ApiError:
            with pytest.raises(SparkError):
                decode([bytes(log)], ALL)
            refused += 1
            continue
        if any(not 0 <= record.offset <= header.last_offset for record in decoded):
            with pytest.raises(SparkError, match="offset is not one of the batch"):
                decode([bytes(log)], ALL)
            continue
        rows = rows_of(decode([bytes(log)], ALL, include_headers=False))
        assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
            (record.offset, record.key, record.value) for record in decoded
        ]
    assert 100 < refused < 1400


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_malformed_compression_is_refused(codec: Compression) -> None:
    log = encode_batch([Record(0, 0, None, b"x" * 100)], compression=codec)
    log[BATCH_OVERHEAD:] = np.random.default_rng(1).bytes(len(log) - BATCH_OVERHEAD)
    write_crc(log, 0, len(log))
    with pytest.raises(SparkError, match=r"orders-7: .*cannot be read"):
        decode([bytes(log)], ALL)


@given(log=logs(), data=st.data())
def test_a_response_is_not_needed_any_more_when_it_was_decoded(
    log: bytes, data: st.DataObject
) -> None:
    """Its buffer is used again for the next one."""
    ends = [0, *(at + header.size_bytes for at, header in iterate_headers(log))]
    decoder = RangeDecoder(ALL, include_headers=True, rows_max=data.draw(st.integers(1, 100)))
    rows = []
    for begin, end in itertools.pairwise(ends):
        buffer = bytearray(log[begin:end])
        batches = list(decoder.add(FetchedBatches(memoryview(buffer)), None, 0))
        buffer[:] = b"\xff" * len(buffer)
        rows += rows_of(batches)
    rows += rows_of(decoder.finish())
    assert rows == expected_rows(log, ALL)


def test_responses_that_fill_half_of_an_arrow_batch_are_not_held_back() -> None:
    decoder = RangeDecoder(ALL, include_headers=False, rows_max=20)
    gathered = []
    for base, count in ((0, 9), (9, 1), (10, 12), (22, 3)):
        records = [Record(base + each, 0, None, b"v") for each in range(count)]
        response = FetchedBatches(memoryview(encode_batch(records, base_offset=base)))
        gathered.append([batch.num_rows for batch in decoder.add(response, None, 0)])
    assert gathered == [[], [10], [12], []]
    assert [batch.num_rows for batch in decoder.finish()] == [3]
