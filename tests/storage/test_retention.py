from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.storage.log_making import (
    NOW_MS,
    append,
    fill_segments,
    make_batch,
    make_log,
    offsets,
    reopen,
)
from tidelog.storage.log import Log
from tidelog.testing.faults import FaultyFiles, PowerCut


def test_old_segments_go_by_time(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=200, retention_ms=1000)
    fill_segments(log, 5)
    assert log.delete_old_segments(NOW_MS + 1002, 5) == 2
    assert (log.log_start_offset, offsets(log)) == (2, [2, 3, 4])
    assert log.delete_old_segments(NOW_MS + 1002, 5) == 0


def test_old_segments_go_by_size(tmp_path: Path) -> None:
    size = len(make_batch(value=bytes(60)))
    log = make_log(tmp_path, segment_bytes=200, retention_ms=-1, retention_bytes=2 * size)
    fill_segments(log, 5)
    assert log.delete_old_segments(NOW_MS, 5) == 3
    assert offsets(log) == [3, 4]


def test_what_is_not_committed_stays(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=200, retention_ms=0)
    fill_segments(log, 5)
    assert log.delete_old_segments(NOW_MS + 10_000, 2) == 2
    assert offsets(log) == [2, 3, 4]


def test_a_log_whose_records_all_expired_is_empty_and_goes_on(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=200, retention_ms=1000)
    fill_segments(log, 3)
    assert log.delete_old_segments(NOW_MS + 10_000, 3) == 3
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (3, 3, 0)
    assert log.delete_old_segments(NOW_MS + 20_000, 3) == 0
    assert append(log) == 3


def test_compacted_logs_lose_only_what_is_below_their_start(tmp_path: Path) -> None:
    log = make_log(
        tmp_path, segment_bytes=200, retention_ms=0, cleanup_policy=frozenset({"compact"})
    )
    fill_segments(log, 5)
    assert log.delete_old_segments(NOW_MS + 10_000, 5) == 0
    log.advance_log_start(2)
    assert log.delete_old_segments(NOW_MS + 10_000, 5) == 2
    assert [segment.base_offset for segment in log.segments] == [2, 3, 4]


# Full disks, of which retention is the cure


def fill_up(files: FaultyFiles) -> None:
    files.space_bytes = files.used_bytes
    files.has_room_for_names = False


def unlink_deleted(log: Log, files: FaultyFiles) -> None:
    for path in log.local.segments.take_deletable_files(NOW_MS + 10**9):
        files.unlink(path)


def test_old_segments_go_from_a_full_disk(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    log = make_log(tmp_path / "log", files=files, segment_bytes=200, retention_ms=1000)
    fill_segments(log, 5)
    reader = log.read(0, 1000, 5)
    fill_up(files)
    before = files.used_bytes
    assert log.delete_old_segments(NOW_MS + 1002, 5) == 2
    unlink_deleted(log, files)
    assert files.used_bytes < before
    assert (log.log_start_offset, offsets(log)) == (2, [2, 3, 4])
    assert reader.file_slice is not None
    assert reader.file_slice.read(files)  # who reads it has it still
    assert not list((tmp_path / "log").glob("00000000000000000000*"))
    log.release()
    files.heal()
    assert offsets(reopen(tmp_path / "log", files=files, segment_bytes=200)) == [2, 3, 4]


@pytest.mark.parametrize("preallocate", [False, True])
def test_a_log_whose_only_segment_expired_goes_from_a_full_disk(
    tmp_path: Path, preallocate: bool
) -> None:
    """The new segment and what is known of producers must fit into what the old one gives back."""
    files = FaultyFiles(tmp_path)
    log = make_log(
        tmp_path / "log",
        files=files,
        segment_bytes=10_000,
        index_interval_bytes=100,
        retention_ms=1000,
        preallocate=preallocate,
    )
    for sequence in range(20):
        append(log, value=bytes(200), producer_id=7, epoch=0, sequence=sequence)
    log.flush()
    append(log, value=bytes(200), producer_id=7, epoch=0, sequence=20)
    files.space_bytes = files.used_bytes
    before = files.used_bytes
    assert log.delete_old_segments(NOW_MS + 10_000, 21) == 1
    unlink_deleted(log, files)
    assert files.used_bytes < before - 4000
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (21, 21, 0)
    log.release()
    files.heal()
    again = reopen(tmp_path / "log", files=files, recovery_point=21, retention_ms=1000)
    state = again.producers.get(7)
    assert state is not None
    assert state.last_sequence == 20


def test_of_an_expired_log_on_a_full_disk_at_least_the_closed_segments_go(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    log = make_log(tmp_path / "log", files=files, segment_bytes=200, retention_ms=1000)
    fill_segments(log, 3)
    fill_up(files)
    assert log.delete_old_segments(NOW_MS + 10_000, 3) == 2
    assert offsets(log) == [2]
    with pytest.raises(OSError) as refused:
        log.delete_old_segments(NOW_MS + 10_000, 3)
    assert refused.value.errno == errno.ENOSPC
    files.heal()
    assert log.delete_old_segments(NOW_MS + 10_000, 3) == 1
    assert append(log) == 3


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_while_retention_frees_a_full_disk_leaves_a_valid_log(
    tmp_path: Path, seed: int
) -> None:
    step = 0
    while True:
        files = FaultyFiles(tmp_path / f"{step}")
        log = make_log(files.root / "log", files=files, segment_bytes=200, retention_ms=1000)
        fill_segments(log, 6)
        log.flush()
        files.sync_directory(files.root)
        fill_up(files)
        files.cut_after = files.operations + step
        is_over = True
        try:
            assert log.delete_old_segments(NOW_MS + 1004, 6) == 4
        except PowerCut:
            is_over = False
        after = files.power_cut(tmp_path / f"{step}-after", seed)
        log = reopen(after.root / "log", files=after, recovery_point=6, segment_bytes=200)
        assert log.log_end_offset == 6, step
        assert offsets(log) == list(range(log.log_start_offset, 6)), step
        assert log.log_start_offset <= 4
        if is_over:
            break
        step += 1
    assert step > 8
