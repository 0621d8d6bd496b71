from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.log_making import (
    FILES,
    NOW_MS,
    append,
    make_batch,
    make_log,
    offsets,
    read_all,
    reopen,
)
from tidelog.protocol.records import Record
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.compaction.segment_swap import begin_swap
from tidelog.storage.files import CorruptFileError
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_loading import LoadReport, open_log
from tidelog.testing.inline_world import InlineWorld

SETTINGS: dict[str, Any] = {"segment_bytes": 2000, "index_interval_bytes": 200}
LAST_TIMESTAMP = NOW_MS + 59


def make_full_log(directory: Path) -> Log:
    """Several segments with several index entries each, two epochs and a producer."""
    log = make_log(directory, **SETTINGS)
    for i in range(60):
        append(
            log,
            count=2,
            value=bytes([i]) * 30,
            timestamp=NOW_MS + i,
            leader_epoch=i // 40,
            producer_id=5,
            epoch=0,
            sequence=i * 2,
        )
    assert len(log.segments) > 3
    return log


def file(directory: Path, slot: int, suffix: str) -> Path:
    return sorted(directory.glob(f"*{suffix}"))[slot]


def check_whole(log: Log, records: list[Record]) -> None:
    """The log holds these records, and every way to find them works."""
    assert read_all(log) == records
    for record in records:
        found = log.read(record.offset, 1, log.log_end_offset)
        assert found.next_offset > record.offset
        at_time = log.offset_for_timestamp(record.timestamp)
        assert at_time is not None
        assert at_time.timestamp_ms == record.timestamp
        assert at_time.offset <= record.offset
    newest = log.max_timestamp_offset()
    assert newest is not None
    assert newest.timestamp_ms == records[-1].timestamp
    assert log.leader_epochs.epoch_for_offset(0) == 0
    end = append(log, leader_epoch=9, producer_id=5, epoch=0, sequence=len(records))
    assert end == records[-1].offset + 1


def test_opening_after_a_clean_close_repairs_nothing(tmp_path: Path) -> None:
    log = make_full_log(tmp_path)
    records = read_all(log)
    log.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    report = LoadReport()
    again = open_log(
        tmp_path,
        TopicPartition("orders", 0),
        LogConfig(**SETTINGS),
        world=InlineWorld(FILES),
        clean=True,
        report=report,
    )
    assert report.repairs == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert again.leader_epochs.entries == [(0, 0), (1, 80)]
    assert again.local.recovery_point == again.durable_offset == again.log_end_offset == 120
    check_whole(again, records)


def test_opening_after_a_crash_finds_everything(tmp_path: Path) -> None:
    log = make_full_log(tmp_path)
    records = read_all(log)
    log.release()
    check_whole(reopen(tmp_path, **SETTINGS), records)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("slot", [0, 1, -1])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["deleted", "emptied", "torn", "halved", "flipped", "zeros"])
def test_damaged_indexes_are_rebuilt(
    tmp_path: Path, clean: bool, slot: int, suffix: str, damage: str
) -> None:
    log = make_full_log(tmp_path)
    records = read_all(log)
    log.close()
    path = file(tmp_path, slot, suffix)
    whole = path.read_bytes()
    entry = 8 if suffix == ".index" else 12
    if damage == "deleted":
        path.unlink()
    else:
        flipped = bytearray(whole)
        for at in range(3, len(flipped), 4):
            flipped[at] ^= 0x55
        path.write_bytes(
            {
                "emptied": b"",
                "torn": whole[:-3],
                "halved": whole[: len(whole) // entry // 2 * entry],
                "flipped": bytes(flipped),
                "zeros": whole + bytes(entry * 5),
            }[damage]
        )
    check_whole(reopen(tmp_path, clean=clean, **SETTINGS), records)


@pytest.mark.parametrize("slot", [0, -1])
def test_missing_snapshots_are_made_up_for(tmp_path: Path, slot: int) -> None:
    log = make_full_log(tmp_path)
    records = read_all(log)
    log.close()
    file(tmp_path, slot, ".snapshot").unlink()
    check_whole(reopen(tmp_path, clean=True, **SETTINGS), records)


def test_damaged_snapshots_are_made_up_for(tmp_path: Path) -> None:
    log = make_full_log(tmp_path)
    records = read_all(log)
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    check_whole(reopen(tmp_path, clean=True, **SETTINGS), records)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [None, b"", b"0\n9\n0 0\n", b"rubbish"])
def test_lost_leader_epochs_are_read_from_the_batches(
    tmp_path: Path, clean: bool, content: bytes | None
) -> None:
    log = make_full_log(tmp_path)
    log.close()
    path = tmp_path / "leader-epoch-checkpoint"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    again = reopen(tmp_path, clean=clean, recovery_point=120, **SETTINGS)
    assert again.leader_epochs.entries == [(0, 0), (1, 80)]
    assert path.read_bytes() == b"0\n2\n0 0\n1 80\n"


@given(seed=st.integers(0, 2**32), clean=st.booleans())
def test_the_log_ends_at_the_first_damage_behind_the_recovery_point(
    seed: int, clean: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("log")
    rng = Random(seed)
    log = make_log(directory, **SETTINGS)
    ends = []
    for i in range(25):
        append(log, count=rng.randint(1, 3), value=rng.randbytes(rng.randrange(60)))
        ends.append((log.segments[-1].base_offset, log.segments[-1].size_bytes, log.log_end_offset))
        if i == 9:
            log.flush()
    recovery_point = log.local.recovery_point
    if clean:
        log.close()
    else:
        log.release()
    number = rng.randrange(10, 25)
    base, position, _ = ends[number]
    start = ends[number - 1][1] if ends[number - 1][0] == base else 0
    path = directory / f"{base:020d}.log"
    content = bytearray(path.read_bytes())
    at = rng.randrange(start, position)
    kind = rng.choice(["flip", "cut", "garbage"])
    if kind == "flip":
        content[at] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del content[at:]
    else:
        content[at : at + 40] = rng.randbytes(len(content[at : at + 40]))
    path.write_bytes(content)
    again = reopen(directory, recovery_point=recovery_point, contiguous=True, **SETTINGS)
    whole = [log.log_end_offset] if start + 12 <= at < start + 16 else []  # the leader epoch
    assert again.log_end_offset in [ends[number - 1][2], *whole]
    assert offsets(again) == list(range(again.log_end_offset))
    assert append(again, leader_epoch=again.leader_epochs.latest_epoch) == len(offsets(again)) - 1


def test_a_torn_tail_is_cut_after_a_clean_close_too(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, count=3)
    append(log, count=2)
    log.close()
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-5])
    again = reopen(tmp_path, clean=True)
    assert again.log_end_offset == 3
    assert path.stat().st_size == again.size_bytes
    assert append(again) == 3
    assert offsets(again) == [0, 1, 2, 3]


def test_segments_behind_a_damaged_one_go(tmp_path: Path) -> None:
    log = make_full_log(tmp_path)
    bases = [segment.base_offset for segment in log.segments]
    log.release()
    path = file(tmp_path, 1, ".log")
    path.write_bytes(path.read_bytes()[:-1])
    again = reopen(tmp_path, **SETTINGS)
    assert [segment.base_offset for segment in again.segments] == bases[:2]
    assert bases[1] < again.log_end_offset < bases[2]
    assert offsets(again) == list(range(again.log_end_offset))
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [
        f"{base:020d}.log" for base in bases[:2]
    ]
    state = again.producers.get(5)
    assert state is not None
    assert state.last_data_offset == again.log_end_offset - 1


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 3])
def test_a_segment_that_was_never_made_is_not_the_end(
    tmp_path: Path, clean: bool, recovery_point: int
) -> None:
    """A roll failed with the new file made already, and the log went on in the old segment."""
    log = make_log(tmp_path / "log")
    for _ in range(3):
        append(log)
    (tmp_path / "log" / "00000000000000000003.log").touch()
    for _ in range(2):
        append(log)
    expected = read_all(log)
    log.close()
    log = reopen(tmp_path / "log", clean=clean, recovery_point=recovery_point)
    assert log.log_end_offset == 5
    assert read_all(log) == expected
    assert not (tmp_path / "log" / "00000000000000000003.log").exists()
    log.close()


def test_an_empty_segment_behind_a_gap_is_the_end(tmp_path: Path) -> None:
    """Compaction may have removed the last records before it."""
    log = make_log(tmp_path / "log")
    append(log)
    log.close()
    (tmp_path / "log" / "00000000000000000003.log").touch()
    log = reopen(tmp_path / "log", clean=True)
    assert log.log_end_offset == 3
    log.close()


def test_a_gap_between_segments_ends_a_log_that_has_none(tmp_path: Path) -> None:
    log = make_full_log(tmp_path)
    bases = [segment.base_offset for segment in log.segments]
    log.release()
    file(tmp_path, 1, ".log").write_bytes(b"")
    again = reopen(tmp_path, contiguous=True, **SETTINGS)
    assert again.log_end_offset == bases[1]


def test_recovery_does_not_look_below_the_recovery_point(tmp_path: Path) -> None:
    log = make_full_log(tmp_path)
    log.flush()
    append(log, leader_epoch=1, producer_id=5, epoch=0, sequence=120)
    log.release()
    path = file(tmp_path, 0, ".log")
    damaged = bytearray(path.read_bytes())
    damaged[70] ^= 1
    path.write_bytes(damaged)
    again = reopen(tmp_path, recovery_point=120, **SETTINGS)
    assert again.log_end_offset == 121
    assert append(again, producer_id=5, epoch=0, sequence=121, leader_epoch=1) == 121


def test_stray_and_half_deleted_files_are_cleared_away(tmp_path: Path) -> None:
    log = make_full_log(tmp_path)
    records = read_all(log)
    log.close()
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.cleaned",
        "00000000000000000000.log.cleaned",
        "00000000000000000777.index",
        "00000000000000000777.timeindex",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000001.snapshot",
    ):
        (tmp_path / name).write_bytes(b"left over")
    again = reopen(tmp_path, clean=True, **SETTINGS)
    check_whole(again, records)
    left = {path.suffix for path in tmp_path.iterdir()}
    assert left == {".log", ".index", ".timeindex", ".snapshot", ""}
    assert not list(tmp_path.glob("*777*"))
    assert not (tmp_path / "00000000000000000001.snapshot").exists()


def test_the_topic_id_is_kept_and_compared(tmp_path: Path) -> None:
    topic_partition, mine, other = TopicPartition("orders", 0), b"m" * 16, b"o" * 16
    log = open_log(tmp_path, topic_partition, LogConfig(), world=InlineWorld(FILES), topic_id=mine)
    assert log.topic_id == mine
    log.close()
    assert (
        open_log(tmp_path, topic_partition, LogConfig(), world=InlineWorld(FILES)).topic_id == mine
    )
    with pytest.raises(CorruptFileError, match=r"partition\.metadata"):
        open_log(tmp_path, topic_partition, LogConfig(), world=InlineWorld(FILES), topic_id=other)


def test_a_log_that_lost_everything_starts_at_its_log_start(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, count=10)
    log.advance_log_start(6)
    log.close()
    (tmp_path / "00000000000000000000.log").write_bytes(b"")
    again = reopen(tmp_path, log_start_offset=6)
    assert (again.log_start_offset, again.log_end_offset) == (6, 6)
    assert append(again) == 6


# Compaction's swap


def write_cleaned(log: Log, directory: Path, bases: list[int]) -> None:
    """One segment of half the batches of the given ones, under .cleaned names."""
    workshop = directory.parent / "workshop"
    cleaned = make_log(workshop, segment_bytes=1 << 20)
    cleaned.truncate_fully_and_start_at(bases[0])
    for segment in log.segments:
        if segment.base_offset in bases:
            for position, header in segment.headers():
                if header.base_offset % 4 == 0:
                    data = segment.path.read_bytes()[position : position + header.size_bytes]
                    cleaned.append_as_follower(memoryview(bytearray(data)))
    cleaned.close()
    (workshop / f"{bases[0]:020d}.txnindex").touch()
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        name = f"{bases[0]:020d}{suffix}"
        shutil.copy(workshop / name, directory / f"{name}.cleaned")


class Stop(Exception):
    pass


class StoppingFiles(type(FILES)):  # type: ignore[misc]
    """Dies at the n-th rename or removal."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def _count(self) -> None:
        if not self.left:
            raise Stop
        self.left -= 1

    def rename(self, source: Path, target: Path, /) -> None:
        self._count()
        FILES.rename(source, target)

    def unlink(self, path: Path, /) -> None:
        self._count()
        FILES.unlink(path)


def stops(call: Callable[[], object]) -> bool:
    try:
        call()
    except Stop:
        return True
    return False


def test_a_compacted_segment_takes_the_place_of_old_ones(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    log = make_full_log(directory)
    bases = [segment.base_offset for segment in log.segments]
    reading = log.read(0, 1 << 20, 120)
    before = reading.file_slice
    assert before is not None
    old_bytes = before.read(FILES)
    write_cleaned(log, directory, bases[:2])
    begin_swap(FILES, directory, bases[0])
    assert log.replace_segments(bases[0], bases[:2])
    assert [segment.base_offset for segment in log.segments] == [bases[0], *bases[2:]]
    expected = [o for o in range(bases[2]) if o % 4 < 2] + list(range(bases[2], 120))
    assert offsets(log) == expected
    assert log.read(2, 1, 120).next_offset == 6
    assert before.read(FILES) == old_bytes
    assert log.local.segments.take_deletable_files(NOW_MS)
    log.close()
    assert offsets(reopen(directory, clean=True, **SETTINGS)) == expected


def test_segments_that_are_gone_or_active_are_not_replaced(tmp_path: Path) -> None:
    log = make_full_log(tmp_path)
    bases = [segment.base_offset for segment in log.segments]
    assert not log.replace_segments(bases[0], [bases[0], bases[2]])
    assert not log.replace_segments(bases[-1], [bases[-1]])
    assert not log.replace_segments(7, [7])
    assert offsets(log) == list(range(120))


def test_a_crash_anywhere_in_a_swap_leaves_the_old_or_the_new_segments(tmp_path: Path) -> None:
    original = tmp_path / "original" / "log"
    log = make_full_log(original)
    bases = [segment.base_offset for segment in log.segments]
    write_cleaned(log, original, bases[:2])
    log.close()
    old = list(range(120))
    new = [o for o in range(bases[2]) if o % 4 < 2] + list(range(bases[2], 120))
    seen = set()
    for at in range(100):
        directory = tmp_path / str(at)
        shutil.copytree(original, directory)
        # Opening would clear the .cleaned files away: they come after it, as in a running node.
        for path in directory.glob("*.cleaned"):
            path.unlink()
        files = StoppingFiles(1000)
        log = reopen(directory, files=files, clean=True, **SETTINGS)
        for path in original.glob("*.cleaned"):
            shutil.copy(path, directory)
        files.left = at
        stopped = stops(partial(begin_swap, files, directory, bases[0])) or stops(
            partial(log.replace_segments, bases[0], bases[:2])
        )
        # Recovery itself may be interrupted, once at each of its steps.
        for step in range(30):
            copy = tmp_path / f"{at}-{step}"
            shutil.copytree(directory, copy)
            interrupted = StoppingFiles(step)
            finished = not stops(partial(reopen, copy, files=interrupted, **SETTINGS))
            found = offsets(reopen(copy, **SETTINGS))
            assert found in (old, new)
            seen.add(found == new)
            shutil.rmtree(copy)
            if finished:
                break
        if not stopped:
            assert found == new
            break
    assert seen == {True, False}


def test_opened_logs_hold_no_descriptor_until_they_are_used(tmp_path: Path) -> None:

    for i in range(30):
        log = make_log(tmp_path / str(i))
        append(log)
        log.close()
    before = len(os.listdir("/proc/self/fd"))
    logs = [reopen(tmp_path / str(i), clean=True) for i in range(30)]
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    for log in logs:
        assert log.append_as_leader(make_batch(), 0, NOW_MS).first_offset == 1
