import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.decode.logs import logs
from tidelog.protocol.errors import ApiError
from tidelog.protocol.record_batch import MAGIC_AT, BatchHeader, iterate_headers
from tidelog.protocol.records import Record, encode_batch
from tidelog.spark.decode import FetchedBatches

BATCH = bytes(encode_batch([Record(5, 0, None, b"hello")], base_offset=5))


@given(log=logs(), cut=st.integers(0, 400))
def test_headers_are_those_that_the_protocol_reads(log: bytes, cut: int) -> None:
    fetched = log[: max(0, len(log) - cut)]
    expected = list(iterate_headers(fetched, allow_partial=True))
    batches = FetchedBatches(memoryview(fetched))
    assert batches.begins.tolist() == [at for at, _ in expected]
    assert batches.ends.tolist() == [at + header.size_bytes for at, header in expected]
    columns = [batches.column(name).tolist() for name in BatchHeader._fields]
    assert list(zip(*columns, strict=True)) == [tuple(header) for _, header in expected]
    assert [batches.header(index) for index in range(len(batches))] == [
        header for _, header in expected
    ]
    assert batches.next_offset == (expected[-1][1].next_offset if expected else -1)
    assert batches.find_corrupt(0, len(batches)) is None


def test_what_is_no_batch_is_refused() -> None:
    old = bytearray(BATCH)
    old[MAGIC_AT] = 1
    with pytest.raises(ApiError, match="message format 1 is not supported"):
        FetchedBatches(memoryview(BATCH + old))
    for length in (-1, 0, 48):
        short = bytearray(BATCH)
        struct.pack_into(">i", short, 8, length)
        with pytest.raises(ApiError, match=f"length {length}"):
            FetchedBatches(memoryview(BATCH + short))


def test_corrupt_batches_are_found() -> None:
    for index in range(3):
        log = bytearray(BATCH * 3)
        log[index * len(BATCH) + 40] ^= 1
        batches = FetchedBatches(memoryview(log))
        assert batches.find_corrupt(0, len(batches)) == index
