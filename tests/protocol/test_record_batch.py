"""Batch headers: reading, checking, stamping in place."""

import pytest

from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    TimestampType,
    check_crc,
    iterate_headers,
    pack_header,
    read_header,
    stamp,
    stamp_append_time,
    stamp_producer,
)
from tidelog.protocol.records import Record, decode_records, encode_batch


def batch_of(count: int = 2, **options: int) -> bytearray:
    records = [Record(index, 1000 + index, None, b"v") for index in range(count)]
    return encode_batch(records, **options)  # type: ignore[arg-type]


def test_a_header_says_what_the_batch_holds() -> None:
    batch = encode_batch(
        [Record(10, 500, b"k", b"v"), Record(13, 400, None, None)],
        base_offset=10,
        compression=Compression.GZIP,
        producer_id=77,
        producer_epoch=3,
        base_sequence=8,
        partition_leader_epoch=5,
        is_transactional=True,
    )
    header = read_header(batch, 0)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (10, 13, 14)
    assert (header.base_timestamp, header.max_timestamp) == (500, 500)
    assert (header.producer_id, header.producer_epoch) == (77, 3)
    assert (header.base_sequence, header.last_sequence) == (8, 11)
    assert header.partition_leader_epoch == 5
    assert header.compression is Compression.GZIP
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.is_transactional
    assert not header.is_control
    assert header.delete_horizon_ms is None
    assert header.record_count == 2
    assert pack_header(header) == bytes(batch[:BATCH_OVERHEAD])


def test_sequence_numbers_start_again_after_the_largest() -> None:
    header = read_header(batch_of(4, base_sequence=2**31 - 2, producer_id=1), 0)
    assert header.last_sequence == 1
    assert read_header(batch_of(4), 0).last_sequence == -1


def test_batches_in_a_row_are_found_one_by_one() -> None:
    first, second = batch_of(1, base_offset=0), batch_of(3, base_offset=0)
    stamp(second, 0, 1, 7)
    found = list(iterate_headers(memoryview(first + second)))
    assert [(at, header.base_offset, header.record_count) for at, header in found] == [
        (0, 0, 1),
        (len(first), 1, 3),
    ]


def test_a_batch_cut_off_is_an_error_or_for_readers_the_end() -> None:
    first, second = batch_of(1), batch_of(1)
    for missing in (1, len(second) - BATCH_OVERHEAD + 1, len(second) - 1):
        data = (first + second)[:-missing]
        with pytest.raises(ApiError) as caught:
            list(iterate_headers(data))
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert [at for at, _ in iterate_headers(data, allow_partial=True)] == [0]


def test_stamping_a_place_in_the_log_keeps_the_crc_valid() -> None:
    data = bytearray(b"before") + batch_of()
    stamp(data, 6, 123456789012, 42)
    header = read_header(data, 6)
    assert (header.base_offset, header.partition_leader_epoch) == (123456789012, 42)
    check_crc(data, 6, header.size_bytes)


def test_stamping_the_append_time_renews_the_crc() -> None:
    data = bytearray(b"before") + batch_of()
    stamp_append_time(memoryview(data), 6, 999_999)
    header = read_header(data, 6)
    assert header.max_timestamp == 999_999
    assert header.base_timestamp == 1000
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    check_crc(data, 6, header.size_bytes)


@pytest.mark.parametrize("is_transactional", [False, True])
def test_stamping_the_producer_renews_the_crc(is_transactional: bool) -> None:
    batch = batch_of() + encode_batch([Record(0, 1, b"k", b"v")], is_transactional=True)
    at = len(batch_of())
    stamp_producer(batch, at, 7, 3, 2**31 - 1, is_transactional=is_transactional)
    header = read_header(batch, at)
    check_crc(batch, at, header.size_bytes)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 2**31 - 1)
    assert header.is_transactional is is_transactional
    assert decode_records(batch[at:], header) == [Record(0, 1, b"k", b"v")]


def test_every_flipped_bit_under_the_crc_is_noticed() -> None:
    batch = batch_of()
    for at in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[at] ^= 1 << (at % 8)
        with pytest.raises(ApiError) as caught:
            check_crc(damaged, 0, len(damaged))
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_by_name(magic: int) -> None:
    # offset, size, crc, magic, attributes, then a key and a value: shorter than a batch header.
    message = bytes(8) + b"\x00\x00\x00\x10" + bytes(4) + bytes([magic]) + bytes(11)
    for data in (message, message * 5):
        with pytest.raises(ApiError, match=f"format {magic}") as caught:
            read_header(data, 0)
        assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_bytes_that_are_no_batch_are_corrupt() -> None:
    batch = batch_of()
    unknown_magic, short_length = bytearray(batch), bytearray(batch)
    unknown_magic[16] = 3
    short_length[8:12] = (48).to_bytes(4, "big")
    negative = bytearray(batch)
    negative[8:12] = b"\xff\xff\xff\xff"
    for data in (b"", b"\x00" * 16, batch[:60], unknown_magic, short_length, negative):
        with pytest.raises(ApiError) as caught:
            read_header(data, 0)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_compression_that_does_not_exist_is_corrupt() -> None:
    header: BatchHeader = read_header(batch_of(), 0)._replace(attributes=7)
    with pytest.raises(ApiError) as caught:
        _ = header.compression
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
