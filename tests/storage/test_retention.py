from __future__ import annotations

from pathlib import Path

from tests.storage.log_making import NOW_MS, append, fill_segments, make_batch, make_log, offsets


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
