from __future__ import annotations

from pathlib import Path

from tests.storage.log_making import append, make_log, offsets, reopen


def test_epochs_follow_appends_and_truncation(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, count=3, leader_epoch=1)
    append(log, count=3, leader_epoch=1)
    append(log, count=3, leader_epoch=4)
    assert log.leader_epochs.end_offset_for(1, log.log_end_offset) == (1, 6)
    log.truncate_to(7)
    assert log.log_end_offset == 6
    assert log.leader_epochs.entries == [(1, 0)]
    log.advance_log_start(4)
    assert log.leader_epochs.entries == [(1, 4)]


def test_truncation_takes_producers_back(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes=200)
    for sequence in range(6):
        append(log, producer_id=9, epoch=0, sequence=sequence, value=bytes(40))
    log.truncate_to(3)
    assert append(log, producer_id=9, epoch=0, sequence=3, value=bytes(40)) == 3
    state = log.producers.get(9)
    assert state is not None
    assert state.last_sequence == 3


def test_a_flush_moves_the_recovery_point_unless_a_truncation_overtakes_it(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, count=4)
    flush = log.local.prepare_flush(log.log_end_offset)
    flush.run()
    append(log)
    log.local.finish_flush(flush)
    assert log.local.recovery_point == 4
    flush = log.local.prepare_flush(log.log_end_offset)
    flush.run()
    log.truncate_to(0)
    append(log)
    log.local.finish_flush(flush)
    assert log.local.recovery_point == 0


def test_preallocated_segments_are_trimmed(tmp_path: Path) -> None:
    log = make_log(tmp_path, preallocate=True, segment_bytes=1000)
    for _ in range(12):
        append(log, value=bytes(100))
    closed, active = log.segments[0], log.segments[-1]
    assert closed.path.stat().st_size == closed.size_bytes
    assert active.path.stat().st_size == 1000
    log.release()
    assert offsets(reopen(tmp_path)) == list(range(12))
    again = reopen(tmp_path, clean=True)
    assert offsets(again) == list(range(12))
    again.close()


def test_a_copy_knows_the_producers_that_retention_left_no_batch_of(tmp_path: Path) -> None:
    log, copy = make_log(tmp_path / "log"), make_log(tmp_path / "copy")
    append(log, count=2, producer_id=9, epoch=0, sequence=0)
    copy.truncate_fully_and_start_at(2)
    copy.local.take_over_producers(log.local)
    copy.flush()
    append(log, producer_id=9, epoch=0, sequence=2)
    # What the original gets afterwards is its own.
    assert append(copy, producer_id=9, epoch=0, sequence=2) == 2
    copy.release()
    again = reopen(tmp_path / "copy", recovery_point=2, log_start_offset=2)
    state = again.producers.get(9)
    assert state is not None
    assert state.last_sequence == 2
