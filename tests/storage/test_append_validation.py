from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.storage.log_making import NOW_MS, content, make_batch, make_log, read_all
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode, RecordsError
from tidelog.protocol.record_batch import TimestampType, read_header, write_crc
from tidelog.protocol.records import Record, encode_batch
from tidelog.storage.append_result import Origin

HOUR_MS = 3600 * 1000


def refused(tmp_path: Path, batches: memoryview, **settings: Any) -> ErrorCode:
    """The error of an append, after which the log must be as before."""
    log = make_log(tmp_path / "log", **settings)
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(batches, 0, NOW_MS)
    assert log.log_end_offset == 0
    assert log.size_bytes == 0
    log.append_as_leader(make_batch(), 0, NOW_MS)
    assert len(read_all(log)) == 1
    return caught.value.code


def record_errors(
    tmp_path: Path, batches: memoryview, **settings: Any
) -> tuple[ErrorCode, str, list[tuple[int, str | None]]]:
    log = make_log(tmp_path / "log", **settings)
    with pytest.raises(RecordsError) as caught:
        log.append_as_leader(batches, 0, NOW_MS)
    assert log.log_end_offset == 0
    return caught.value.code, caught.value.message, list(caught.value.record_errors)


def patched(batch: memoryview, at: int, data: bytes, *, fix_crc: bool = True) -> memoryview:
    batch[at : at + len(data)] = data
    if fix_crc:
        write_crc(batch, 0, len(batch))
    return batch


def test_a_flipped_bit_anywhere_behind_the_crc_is_noticed(tmp_path: Path) -> None:
    size = len(make_batch())
    for number, at in enumerate(range(17, size, 7)):
        batch = make_batch()
        batch[at] ^= 4
        code = refused(tmp_path / str(number), batch)
        assert code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", [0, 1, 11, 12, 20, 60, 61])
def test_a_torn_batch_is_corrupt(tmp_path: Path, size: int) -> None:
    assert refused(tmp_path, make_batch()[:size]) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
def test_a_lie_about_the_length_is_corrupt(tmp_path: Path, length: int) -> None:
    batch = patched(make_batch(), 8, struct.pack(">i", length), fix_crc=False)
    assert refused(tmp_path, batch) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_get_their_own_error(tmp_path: Path, magic: int) -> None:
    batch = patched(make_batch(), 16, bytes([magic]), fix_crc=False)
    assert refused(tmp_path, batch) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_a_batch_above_the_limit_is_too_large(tmp_path: Path) -> None:
    batch = make_batch(value=bytes(1000))
    code = refused(tmp_path, batch, max_message_bytes=len(batch) - 1)
    assert code is ErrorCode.MESSAGE_TOO_LARGE
    log = make_log(tmp_path / "exact", max_message_bytes=len(batch))
    assert log.append_as_leader(make_batch(value=bytes(1000)), 0, NOW_MS).first_offset == 0


def test_batches_above_a_segment_are_refused(tmp_path: Path) -> None:
    batch = make_batch(value=bytes(1000))
    code = refused(tmp_path, batch, segment_bytes=len(batch) - 1)
    assert code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (57, struct.pack(">i", 3)),  # count
        (57, struct.pack(">i", 0)),
        (57, struct.pack(">i", -2)),
        (23, struct.pack(">i", 5)),  # last offset delta
        (23, struct.pack(">i", -1)),
        (21, struct.pack(">h", 0x20)),  # a control batch
    ],
)
def test_batches_that_contradict_themselves_are_invalid(
    tmp_path: Path, at: int, data: bytes
) -> None:
    assert refused(tmp_path, patched(make_batch(2), at, data)) is ErrorCode.INVALID_RECORD


def test_a_produced_batch_starts_at_offset_zero(tmp_path: Path) -> None:
    assert refused(tmp_path, make_batch(base_offset=1)) is ErrorCode.INVALID_RECORD


def test_a_producer_needs_a_sequence_and_an_epoch(tmp_path: Path) -> None:
    without_sequence = make_batch(producer_id=5, epoch=0)
    assert refused(tmp_path / "a", without_sequence) is ErrorCode.INVALID_RECORD
    without_epoch = make_batch(producer_id=5, sequence=0)
    assert refused(tmp_path / "b", without_epoch) is ErrorCode.INVALID_RECORD


def test_an_unknown_compression_is_unsupported(tmp_path: Path) -> None:
    batch = patched(make_batch(), 21, struct.pack(">h", 5))
    assert refused(tmp_path, batch) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_timestamps_must_be_within_their_bounds(tmp_path: Path) -> None:
    late = make_batch(timestamps=[NOW_MS, NOW_MS + HOUR_MS + 1])
    assert refused(tmp_path / "a", late) is ErrorCode.INVALID_TIMESTAMP
    early = make_batch(timestamp=NOW_MS - 1001)
    code = refused(tmp_path / "b", early, message_timestamp_before_max_ms=1000)
    assert code is ErrorCode.INVALID_TIMESTAMP
    log = make_log(tmp_path / "c", message_timestamp_before_max_ms=1000)
    log.append_as_leader(make_batch(timestamp=NOW_MS - 1000), 0, NOW_MS)
    log.append_as_leader(make_batch(timestamp=NOW_MS + HOUR_MS), 0, NOW_MS)


def test_a_client_may_not_claim_append_time(tmp_path: Path) -> None:
    batch = make_batch(timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert refused(tmp_path, batch) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_a_compacted_topic_needs_keys(tmp_path: Path, compression: Compression) -> None:
    batch = make_batch(2, key=None, compression=compression)
    code = refused(tmp_path, batch, cleanup_policy=frozenset({"compact"}))
    assert code is ErrorCode.INVALID_RECORD


COMPACT = {"cleanup_policy": frozenset({"compact"})}


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_the_records_without_a_key_are_named(tmp_path: Path, compression: Compression) -> None:
    records = [
        Record(index, NOW_MS, None if index % 10 == 3 else b"k", b"v") for index in range(100)
    ]
    batch = memoryview(encode_batch(records, compression=compression))
    code, message, errors = record_errors(tmp_path, batch, **COMPACT)
    text = "Compacted topic cannot accept message without key in topic partition orders-0"
    assert code is ErrorCode.INVALID_RECORD
    assert errors == [(index, text) for index in range(3, 100, 10)]
    assert message.startswith("One or more records have been rejected due to 10 record errors")
    assert message.count("RecordError(batchIndex=") == 3


def test_the_records_out_of_their_time_are_named(tmp_path: Path) -> None:
    stamps = [NOW_MS, NOW_MS - 1001, -1, NOW_MS + HOUR_MS + 1]
    batch = make_batch(timestamps=stamps)
    code, message, errors = record_errors(tmp_path, batch, message_timestamp_before_max_ms=1000)
    assert code is ErrorCode.INVALID_TIMESTAMP
    assert message == "One or more records have been rejected due to invalid timestamp"
    assert [index for index, _ in errors] == [1, 3]
    assert errors[0][1] == (
        f"Timestamp {NOW_MS - 1001} of message with offset 1 is out of range. The timestamp should"
        f" be within [{NOW_MS - 1000}, {NOW_MS + HOUR_MS}]"
    )


def test_late_records_are_named_on_a_topic_with_no_settings_of_its_own(tmp_path: Path) -> None:
    batch = make_batch(timestamps=[NOW_MS + HOUR_MS + 5, NOW_MS])
    code, _, errors = record_errors(tmp_path, batch)
    assert (code, [index for index, _ in errors]) == (ErrorCode.INVALID_TIMESTAMP, [0])


def test_a_record_without_a_key_and_one_out_of_time_are_both_named(tmp_path: Path) -> None:
    records = [Record(0, NOW_MS, None, b"v"), Record(1, NOW_MS + 2 * HOUR_MS, b"k", b"v")]
    code, _, errors = record_errors(tmp_path, memoryview(encode_batch(records)), **COMPACT)
    assert code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in errors] == [0, 1]


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_every_record_of_a_batch_that_claims_append_time_is_named(
    tmp_path: Path, timestamp_type: str
) -> None:
    batch = make_batch(2, timestamp_type=TimestampType.LOG_APPEND_TIME)
    code, _, errors = record_errors(tmp_path, batch, message_timestamp_type=timestamp_type)
    assert code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in errors] == [0, 1]


def _damaged(compression: Compression = Compression.NONE) -> list[memoryview]:
    """Batches whose checksum is right and whose records cannot be read."""
    size = len(make_batch(3, compression=compression))
    damaged = [
        patched(make_batch(3, compression=compression), 61, b"\xff\xff\xff"),
        patched(make_batch(3, compression=compression), size - 3, b"\x7f\x7f\x7f"),
    ]
    if compression is Compression.NONE:
        trailing = bytearray(make_batch(3)) + b"??"
        trailing[8:12] = struct.pack(">i", len(trailing) - 12)
        write_crc(trailing, 0, len(trailing))
        same_offsets = bytearray(make_batch(3))
        assert same_offsets[64] == 0  # length, attributes, timestamp delta, then the offset's delta
        same_offsets[64] = 2
        write_crc(same_offsets, 0, len(same_offsets))
        damaged += [memoryview(trailing), memoryview(same_offsets)]
    return damaged


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4, Compression.ZSTD])
def test_records_that_do_not_parse_are_refused_where_the_topic_validates(
    tmp_path: Path, compression: Compression
) -> None:
    for number, batch in enumerate(_damaged(compression)):
        code = refused(tmp_path / str(number), batch, record_validation_enable=True)
        assert code is ErrorCode.INVALID_RECORD


def test_whole_records_pass_where_the_topic_validates(tmp_path: Path) -> None:
    log = make_log(tmp_path, record_validation_enable=True)
    for compression in Compression:
        log.append_as_leader(make_batch(3, key=None, compression=compression), 0, NOW_MS)
    assert log.log_end_offset == 3 * len(Compression)


def test_nothing_looks_inside_a_batch_unless_a_setting_wants_it(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for batch in _damaged():
        log.append_as_leader(batch, 0, NOW_MS)
    assert log.log_end_offset == 12


def test_append_time_replaces_the_timestamps(tmp_path: Path) -> None:
    log = make_log(tmp_path, message_timestamp_type="LogAppendTime")
    result = log.append_as_leader(make_batch(3, timestamp=17), 0, NOW_MS)
    assert result.log_append_time_ms == NOW_MS
    ((header, records),) = content(log.read(0, 1 << 20, 3))
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in records] == [NOW_MS] * 3
    found = log.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert found.offset == 0


def test_create_time_is_not_answered(tmp_path: Path) -> None:
    result = make_log(tmp_path).append_as_leader(make_batch(), 0, NOW_MS)
    assert result.log_append_time_ms == -1


@pytest.mark.parametrize("setting", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("sent", [Compression.NONE, Compression.GZIP])
def test_a_topics_own_compression_is_applied(
    tmp_path: Path, setting: str, sent: Compression
) -> None:
    log = make_log(tmp_path, compression_type=setting)
    codec = Compression.NONE if setting == "uncompressed" else Compression[setting.upper()]
    batch = make_batch(5, value=b"abc" * 50, compression=sent, producer_id=3, epoch=1, sequence=0)
    log.append_as_leader(batch, 4, NOW_MS)
    ((header, records),) = content(log.read(0, 1 << 20, 5))
    assert header.compression is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 0)
    assert header.partition_leader_epoch == 4
    assert [(r.offset, r.timestamp, r.key, r.value) for r in records] == [
        (i, NOW_MS, b"k", b"abc" * 50) for i in range(5)
    ]


@pytest.mark.parametrize(
    ("codec", "setting", "fast", "small"),
    [
        ("gzip", "compression_gzip_level", 1, 9),
        ("lz4", "compression_lz4_level", 3, 12),
        ("zstd", "compression_zstd_level", -5, 19),
    ],
)
def test_a_topics_own_compression_has_a_level(
    tmp_path: Path, codec: str, setting: str, fast: int, small: int
) -> None:
    dice = Random(1)
    words = b" ".join(b"word-%d" % dice.randrange(300) for _ in range(5000))

    def stored_bytes(level: int) -> int:
        settings: dict[str, Any] = {"compression_type": codec, setting: level}
        log = make_log(tmp_path / str(level), **settings)
        log.append_as_leader(make_batch(3, value=words, compression=Compression.SNAPPY), 0, NOW_MS)
        ((header, records),) = content(log.read(0, 1 << 20, 3))
        assert header.compression is Compression[codec.upper()]
        assert [record.value for record in records] == [words] * 3
        return log.size_bytes

    assert stored_bytes(small) < stored_bytes(fast) * 0.95


def test_a_batch_that_has_the_topics_codec_keeps_its_bytes_at_any_level(tmp_path: Path) -> None:
    log = make_log(tmp_path, compression_type="gzip", compression_gzip_level=9)
    sent = make_batch(3, value=b"abc" * 500, compression=Compression.GZIP)
    size_bytes = len(sent)
    assert log.append_as_leader(sent, 0, NOW_MS).size_bytes == size_bytes == log.size_bytes


def test_the_bytes_of_the_producer_are_kept_but_for_offset_and_epoch(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(make_batch(2), 6, NOW_MS)
    sent = make_batch(3, compression=Compression.ZSTD, value=bytes(100))
    original = bytes(sent)
    log.append_as_leader(sent, 6, NOW_MS)
    found = log.read(2, 1 << 20, 5).file_slice
    assert found is not None
    with open(found.fd, "rb", closefd=False) as file:
        file.seek(found.position)
        stored = file.read(found.size_bytes)
    assert stored[:8] == (2).to_bytes(8, "big")
    assert stored[8:12] == original[8:12]
    assert stored[12:16] == (6).to_bytes(4, "big")
    assert stored[16:] == original[16:]


def test_coordinators_may_write_control_batches_and_raft_any_size(tmp_path: Path) -> None:
    log = make_log(tmp_path, max_message_bytes=100)
    control = patched(make_batch(), 21, struct.pack(">h", 0x20))
    assert read_header(control, 0).is_control
    log.append_as_leader(control, 0, NOW_MS, origin=Origin.COORDINATOR)
    log.append_as_leader(make_batch(value=bytes(500)), 0, NOW_MS, origin=Origin.RAFT)
    assert log.log_end_offset == 2
