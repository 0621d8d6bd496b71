from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.storage.log_making import (
    NOW_MS,
    append,
    content,
    fill_segments,
    make_batch,
    make_log,
    offsets,
)
from tidelog.world.operating_system.files import OsFiles


def test_segments_roll_by_size(tmp_path: Path) -> None:
    size = len(make_batch())
    log = make_log(tmp_path, segment_bytes=3 * size)
    for _ in range(7):
        append(log)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert offsets(log) == list(range(7))


def test_segments_roll_by_the_time_of_their_records(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_ms=1000)
    for timestamp in (5000, 6000, 6001, 7001, 7002):
        append(log, timestamp=timestamp)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_records_without_time_roll_by_the_age_of_the_segment(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_ms=1000)
    append(log, timestamp=-1)
    append(log, timestamp=-1, now_ms=NOW_MS + 1000)
    append(log, timestamp=-1, now_ms=NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_jitter_brings_the_roll_forward(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_ms=10_000, segment_jitter_ms=10_000)
    for i in range(400):
        append(log, timestamp=NOW_MS + i * 1000)
    assert all(0 <= segment.roll_jitter_ms < 10_000 for segment in log.segments)
    assert len({segment.roll_jitter_ms for segment in log.segments}) > 1
    assert len(log.segments) > 400 // 11


def test_segments_roll_when_an_index_is_full(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_index_bytes=36, index_interval_bytes=0)
    for i in range(9):
        append(log, timestamp=NOW_MS + i)
    # Three entries fit the time index, of which the last place is for closing the segment.
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert all(segment.time_index.count <= 3 for segment in log.segments)


def test_segments_roll_before_relative_offsets_overflow(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    far = 2**31 + 10
    log.append_as_follower(make_batch(base_offset=0, leader_epoch=0))
    log.append_as_follower(make_batch(base_offset=2**31 - 1, leader_epoch=0))
    both = bytearray(make_batch(base_offset=far, leader_epoch=0))
    both += make_batch(base_offset=3 * far, leader_epoch=0)
    log.append_as_follower(memoryview(both))
    assert [segment.base_offset for segment in log.segments] == [0, far, 3 * far]
    assert offsets(log) == [0, 2**31 - 1, far, 3 * far]


def test_rolling_by_hand_leaves_no_empty_segment(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.roll(NOW_MS)
    append(log)
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert (tmp_path / "00000000000000000001.snapshot").exists()


def test_few_files_stay_open(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=200)
    for _ in range(30):
        append(log, value=bytes(60))
    for offset in range(30):
        log.read(offset, 1 << 20, 30)
    log.offset_for_timestamp(NOW_MS + 1)
    log.max_timestamp_offset()
    log.flush()
    assert sum(segment.is_open for segment in log.segments) <= 2


def test_a_slice_outlives_its_segment(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=200)
    for _ in range(6):
        append(log, value=bytes(60))
    found = log.read(0, 1 << 20, 6)
    assert len(log.segments) > 2
    log.truncate_fully_and_start_at(100)
    for path in log.local.segments.take_deletable_files(NOW_MS):
        path.unlink()
    log.close()
    assert [record.offset for _, records in content(found) for record in records] == [0]


def test_deleted_files_are_renamed_and_handed_out_when_their_delay_is_over(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=200, retention_ms=1000, file_delete_delay_ms=500)
    fill_segments(log, 3)
    now_ms = NOW_MS + 1001
    log.delete_old_segments(now_ms, 3)
    assert (tmp_path / "00000000000000000000.log.deleted").exists()
    assert log.local.segments.take_deletable_files(now_ms + 499) == []
    due = log.local.segments.take_deletable_files(now_ms + 500)
    assert {path.name for path in due} == {
        f"00000000000000000000{suffix}.deleted" for suffix in (".log", ".index", ".timeindex")
    }
    assert log.local.segments.take_deletable_files(now_ms + 500) == []


class FullFiles(OsFiles):
    """No file can be made while the disk is full; its name is there by then."""

    is_full = False

    def ftruncate(self, fd: int, size_bytes: int, /) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "no space")
        os.ftruncate(fd, size_bytes)


def test_a_roll_that_fails_leaves_no_file(tmp_path: Path) -> None:
    """A later start would take it for the end of the log."""
    files = FullFiles()
    log = make_log(tmp_path / "log", files=files)
    append(log)
    files.is_full = True
    with pytest.raises(OSError, match="no space"):
        log.roll(NOW_MS)
    files.is_full = False
    assert [path.name for path in sorted((tmp_path / "log").glob("*.log"))] == [
        "00000000000000000000.log"
    ]
    append(log)
    assert log.log_end_offset == 2
    log.close()
