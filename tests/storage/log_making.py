"""Logs and batches for the tests of storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidelog.protocol.compression import Compression
from tidelog.protocol.record_batch import BatchHeader, TimestampType
from tidelog.protocol.records import Record, decode_batches, encode_batch
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_loading import open_log
from tidelog.storage.segment.log_slice import LogSlice
from tidelog.testing.inline_world import InlineWorld
from tidelog.world.files import Files
from tidelog.world.operating_system.files import OsFiles

NOW_MS = 1_700_000_000_000
FILES = OsFiles()


def make_log(directory: Path, *, files: Files = FILES, **settings: Any) -> Log:
    return reopen(directory, files=files, clean=True, **settings)


def reopen(
    directory: Path,
    *,
    files: Files = FILES,
    clean: bool = False,
    contiguous: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    **settings: Any,
) -> Log:
    return open_log(
        directory,
        TopicPartition("orders", 0),
        LogConfig(**settings),
        world=InlineWorld(files, now_ms=NOW_MS),
        clean=clean,
        contiguous=contiguous,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def make_batch(
    count: int = 1,
    *,
    value: bytes = b"v",
    key: bytes | None = b"k",
    timestamp: int = NOW_MS,
    timestamps: list[int] | None = None,
    compression: Compression = Compression.NONE,
    base_offset: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
    leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> memoryview:
    times = timestamps or [timestamp] * count
    records = [Record(base_offset + i, time, key, value) for i, time in enumerate(times)]
    return memoryview(
        encode_batch(
            records,
            base_offset=base_offset,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
            partition_leader_epoch=leader_epoch,
            timestamp_type=timestamp_type,
        )
    )


def append(log: Log, *, now_ms: int = NOW_MS, leader_epoch: int = 0, **batch: Any) -> int:
    """Appends one batch and returns its first offset."""
    result = log.append_as_leader(make_batch(**batch), leader_epoch, now_ms)
    return result.first_offset


def content(found: LogSlice) -> list[tuple[BatchHeader, list[Record]]]:
    if found.file_slice is None:
        return []
    return list(decode_batches(found.file_slice.read(FILES)))


def read_all(log: Log, start_offset: int | None = None) -> list[Record]:
    """Every record from an offset on, by reads as a consumer makes them."""
    offset = log.log_start_offset if start_offset is None else start_offset
    records: list[Record] = []
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, log.log_end_offset)
        assert found.size_bytes
        for _, batch in content(found):
            records += [record for record in batch if record.offset >= offset]
        assert found.next_offset > offset
        offset = found.next_offset
    return records


def offsets(log: Log) -> list[int]:
    return [record.offset for record in read_all(log)]


def fill_segments(log: Log, count: int, **batch: int) -> None:
    """Segments of one batch each."""
    for i in range(count):
        append(log, value=bytes(60), timestamp=NOW_MS + i, **batch)
