from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
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
    content,
    make_batch,
    make_log,
    offsets,
    read_all,
    reopen,
)
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import read_header
from tidelog.protocol.records import Record, encode_batch
from tidelog.storage.log import Log
from tidelog.world.files import Buffer
from tidelog.world.operating_system.files import OsFiles


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.code


# Appending and reading


def test_offsets_follow_each_other(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    first = log.append_as_leader(make_batch(3), 0, NOW_MS)
    second = log.append_as_leader(make_batch(2), 0, NOW_MS)
    assert (first.first_offset, first.last_offset, first.next_offset) == (0, 2, 3)
    assert (second.first_offset, second.last_offset, second.next_offset) == (3, 4, 5)
    assert offsets(log) == [0, 1, 2, 3, 4]


def test_several_batches_land_together(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    both = memoryview(bytearray(make_batch(2)) + bytearray(make_batch(3)))
    result = log.append_as_leader(both, 2, NOW_MS)
    assert (result.first_offset, result.last_offset) == (0, 4)
    headers = [header for header, _ in content(log.read(0, 1 << 20, 5))]
    assert [header.base_offset for header in headers] == [0, 2]
    assert [header.partition_leader_epoch for header in headers] == [2, 2]


def test_of_several_batches_none_lands_when_one_is_wrong(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    bad = bytearray(make_batch(3))
    bad[-1] ^= 1
    both = memoryview(bytearray(make_batch(2)) + bad)
    assert code_of(lambda: log.append_as_leader(both, 0, NOW_MS)) is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0
    assert (tmp_path / "00000000000000000000.log").stat().st_size == 0


def test_a_read_inside_a_batch_gives_the_whole_batch(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, count=2)
    append(log, count=5)
    found = log.read(4, 1 << 20, 7)
    assert [header.base_offset for header, _ in content(found)] == [2]
    assert found.next_offset == 7


def test_a_read_gives_at_least_one_batch_and_never_a_part_of_one(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    size = len(make_batch(value=bytes(100)))
    for _ in range(10):
        append(log, value=bytes(100))
    for max_bytes, count in ((0, 1), (size - 1, 1), (size, 1), (2 * size - 1, 1), (3 * size, 3)):
        found = log.read(4, max_bytes, 10)
        assert found.size_bytes == count * size
        assert found.next_offset == 4 + count
    assert log.read(4, size - 1, 10, minimum_one_batch=False).size_bytes == 0
    assert log.read(4, size, 10, minimum_one_batch=False).size_bytes == size


def test_nothing_is_read_beyond_the_bound(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for _ in range(5):
        append(log, count=2)
    assert [h.base_offset for h, _ in content(log.read(2, 1 << 20, 6))] == [2, 4]
    assert log.read(2, 1 << 20, 6).next_offset == 6
    # A bound inside a batch keeps the whole batch back.
    assert [h.base_offset for h, _ in content(log.read(2, 1 << 20, 7))] == [2, 4]
    empty = log.read(6, 1 << 20, 6)
    assert (empty.size_bytes, empty.next_offset, empty.file_slice) == (0, 6, None)
    assert log.read(10, 1 << 20, 10).size_bytes == 0


def test_reads_outside_of_the_log_are_out_of_range(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, count=4)
    log.advance_log_start(2)
    for offset in (-1, 0, 1, 5):
        assert code_of(lambda o=offset: log.read(o, 100, 4)) is ErrorCode.OFFSET_OUT_OF_RANGE  # type: ignore[misc]
    assert log.read(2, 100, 4).size_bytes


def test_files_have_kafkas_names_and_bytes(tmp_path: Path) -> None:
    log = make_log(tmp_path, index_interval_bytes=150)
    batch = bytes(make_batch(value=bytes(40)))
    for i in range(4):
        append(log, leader_epoch=1, value=bytes(40), timestamp=NOW_MS + i)
    log.close()
    stored = (tmp_path / "00000000000000000000.log").read_bytes()
    assert len(stored) == 4 * len(batch)
    for i in range(4):
        header = read_header(stored, i * len(batch))
        assert (header.base_offset, header.partition_leader_epoch) == (i, 1)
    # More than 150 bytes since the last entry: the third batch is the first to get one.
    at = 2 * len(batch)
    assert (tmp_path / "00000000000000000000.index").read_bytes() == bytes.fromhex(
        f"00000002{at:08x}"
    )
    assert (tmp_path / "00000000000000000000.timeindex").read_bytes() == bytes.fromhex(
        f"{NOW_MS + 2:016x}00000002{NOW_MS + 3:016x}00000003"
    )
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n1 0\n"
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000004.snapshot",
        "leader-epoch-checkpoint",
    ]


# A log against a list


@dataclass
class Model:
    """A log as a list of batches of (offset, value)."""

    batches: list[list[tuple[int, bytes]]] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def records(self, start: int) -> list[tuple[int, bytes]]:
        return [record for batch in self.batches for record in batch if record[0] >= start]

    def truncate_to(self, offset: int) -> None:
        if offset >= self.end:
            return
        self.batches = [batch for batch in self.batches if batch[-1][0] < offset]
        # A batch that held the offset is gone as a whole.
        self.end = min(offset, self.end)
        if self.batches:
            self.end = min(self.end, self.batches[-1][-1][0] + 1)
        elif offset > self.start:
            self.end = min(self.end, self.start)


def play(directory: Path, rng: Random, steps: int) -> None:
    settings: dict[str, Any] = {"segment_bytes": 900, "index_interval_bytes": 150}
    log, model = make_log(directory, **settings), Model()
    for step in range(steps):
        action = rng.choice(["append"] * 6 + ["many", "truncate", "close", "crash", "flush"])
        if action == "append":
            value = rng.randbytes(rng.randrange(80))
            count = rng.randint(1, 5)
            first = append(log, count=count, value=value, timestamp=NOW_MS + step)
            assert first == model.end
            model.batches.append([(first + i, value) for i in range(count)])
            model.end += count
        elif action == "many":
            values = [rng.randbytes(10) for _ in range(3)]
            joined = bytearray().join(bytes(make_batch(2, value=value)) for value in values)
            log.append_as_leader(memoryview(joined), 0, NOW_MS)
            for value in values:
                model.batches.append([(model.end, value), (model.end + 1, value)])
                model.end += 2
        elif action == "truncate" and model.end:
            offset = rng.randint(max(model.end - 12, 1), model.end + 1)
            log.truncate_to(offset)
            model.truncate_to(offset)
        elif action == "flush":
            log.flush()
            assert log.local.recovery_point == log.log_end_offset
        elif action in ("close", "crash"):
            if action == "close":
                log.close()
            else:
                log.release()
            recovery_point = log.local.recovery_point
            log = reopen(
                directory, clean=action == "close", recovery_point=recovery_point, **settings
            )
        assert log.log_end_offset == model.end
        if model.end:
            start = rng.randrange(model.end)
            assert [(r.offset, r.value) for r in read_all(log, start)] == model.records(start)
        assert log.size_bytes == sum(
            path.stat().st_size for path in directory.iterdir() if path.suffix == ".log"
        )


@given(seed=st.integers(0, 2**32))
def test_a_log_is_a_list_of_batches(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    play(tmp_path_factory.mktemp("log"), Random(seed), 40)


@given(data=st.data())
def test_reads_are_whole_batches_within_their_bounds(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = make_log(tmp_path_factory.mktemp("log"), segment_bytes=2000, index_interval_bytes=120)
    ends = []
    sizes = {}
    for count in data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=60)):
        first = append(log, count=count, value=b"x" * (count * 7))
        sizes[first] = len(make_batch(count, value=b"x" * (count * 7)))
        ends.append(log.log_end_offset)
    starts = [0, *ends[:-1]]
    for _ in range(15):
        offset = data.draw(st.integers(0, ends[-1] - 1))
        max_offset = data.draw(st.sampled_from([ends[-1], *ends]))
        max_bytes = data.draw(st.integers(0, 1500))
        found = log.read(offset, max_bytes, max_offset)
        batches = content(found)
        if offset >= max_offset:
            assert not batches
            continue
        first = max(start for start in starts if start <= offset)
        got = [header.base_offset for header, _ in batches]
        assert got[0] == first
        assert got == starts[starts.index(first) :][: len(got)]
        assert found.next_offset == batches[-1][0].next_offset <= max_offset
        assert found.size_bytes <= max_bytes or len(got) == 1
        # It stops only at a bound: of bytes, of offsets, or of the segment.
        following = found.next_offset
        if following < max_offset and following not in {s.base_offset for s in log.segments}:
            assert found.size_bytes + sizes[following] > max_bytes


# Followers


def test_a_follower_keeps_offsets_and_epochs(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.append_as_follower(make_batch(2, base_offset=5, leader_epoch=3))
    result = log.append_as_follower(make_batch(1, base_offset=9, leader_epoch=4))
    assert (result.first_offset, result.next_offset) == (9, 10)
    assert offsets(log) == [5, 6, 9]
    assert log.leader_epochs.entries == [(3, 5), (4, 9)]


# Timestamps


@given(
    steps=st.lists(st.tuples(st.integers(-20, 30), st.integers(1, 4)), min_size=1, max_size=50),
    compression=st.sampled_from([Compression.NONE, Compression.LZ4]),
    data=st.data(),
)
def test_times_are_found_as_by_looking_at_every_record(
    steps: list[tuple[int, int]],
    compression: Compression,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    log = make_log(tmp_path_factory.mktemp("log"), segment_bytes=800, index_interval_bytes=100)
    timestamp = 100_000
    for step, count in steps:
        timestamp += step
        append(
            log,
            timestamps=[timestamp + i * step // 2 for i in range(count)],
            compression=compression,
        )
    start = data.draw(st.integers(0, log.log_end_offset))
    log.advance_log_start(start)
    records = read_all(log)
    for _ in range(10):
        target = data.draw(st.integers(99_000, timestamp + 50))
        expected = next((r for r in records if r.timestamp >= target), None)
        found = log.offset_for_timestamp(target)
        assert (found and found[:2]) == (expected and (expected.timestamp, expected.offset))
    if start == 0:
        newest = max(records, key=lambda record: record.timestamp)
        found = log.max_timestamp_offset()
        assert found is not None
        assert found[:2] == (newest.timestamp, newest.offset)
        assert found.leader_epoch == 0


def test_an_empty_log_has_no_times(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() is None


# Idempotence


def test_a_retry_is_answered_with_the_first_offset_and_writes_nothing(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    batch = {"count": 2, "producer_id": 9, "epoch": 0, "timestamp": NOW_MS - 5}
    append(log, sequence=0, **batch)
    append(log, sequence=2, **batch)
    size = log.size_bytes
    retry = log.append_as_leader(make_batch(sequence=0, **batch), 0, NOW_MS)  # type: ignore[arg-type]
    assert (retry.duplicate, retry.first_offset, retry.last_offset) == (True, 0, 1)
    assert retry.log_append_time_ms == NOW_MS - 5
    assert (log.log_end_offset, log.size_bytes) == (4, size)


def test_retries_are_known_after_a_restart_too(tmp_path: Path) -> None:
    """Of several requests in flight more than the last may have been appended and not answered."""
    log = make_log(tmp_path)
    for sequence in range(7):
        append(log, producer_id=9, epoch=0, sequence=sequence)
    log.close()
    log = reopen(tmp_path, clean=True)
    for sequence in range(2, 7):
        batch = make_batch(producer_id=9, epoch=0, sequence=sequence)
        retry = log.append_as_leader(batch, 0, NOW_MS)
        assert (retry.duplicate, retry.first_offset) == (True, sequence)
    code = code_of(lambda: append(log, producer_id=9, epoch=0, sequence=1))
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, producer_id=9, epoch=0, sequence=7)
    assert log.log_end_offset == 8


def test_several_batches_of_a_producer_are_checked_one_after_the_other(tmp_path: Path) -> None:
    log = make_log(tmp_path)

    def joined(*sequences: int) -> memoryview:
        parts = [bytes(make_batch(producer_id=9, epoch=0, sequence=s)) for s in sequences]
        return memoryview(bytearray(b"".join(parts)))

    log.append_as_leader(joined(0, 1), 0, NOW_MS)
    gap = joined(2, 4)
    code = code_of(lambda: log.append_as_leader(gap, 0, NOW_MS))
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 2
    log.append_as_leader(joined(2, 3), 0, NOW_MS)
    retry = log.append_as_leader(joined(2, 3), 0, NOW_MS)
    assert (retry.duplicate, retry.first_offset) == (True, 2)
    assert log.log_end_offset == 4


# Truncation, deletion of records


def test_truncating_to_the_start_empties_the_log(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, count=5)
    log.truncate_to(0)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)
    assert append(log) == 0


def test_a_log_can_start_over_anywhere(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, count=5, leader_epoch=3, producer_id=1, epoch=0, sequence=0)
    log.truncate_fully_and_start_at(77)
    assert (log.log_start_offset, log.log_end_offset, log.durable_offset) == (77, 77, 77)
    assert log.leader_epochs.entries == []
    assert len(log.producers) == 0
    assert append(log, leader_epoch=4) == 77
    log.close()
    again = reopen(tmp_path, clean=True)
    assert (again.log_start_offset, offsets(again)) == (77, [77])


def test_deleting_records_hides_them_and_survives_a_restart(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, count=3)
    append(log, count=3)
    log.advance_log_start(4)
    assert offsets(log) == [4, 5]
    code = code_of(lambda: log.advance_log_start(7))
    assert code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.close()
    assert offsets(reopen(tmp_path, clean=True, log_start_offset=4)) == [4, 5]


# Durability


class Sink:
    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int, bytes]] = []
        self.truncations: list[int] = []

    def submit(
        self, log: Log, batches: memoryview, base_offset: int, next_offset: int, leader_epoch: int
    ) -> None:
        self.calls.append((base_offset, next_offset, leader_epoch, bytes(batches)))

    def note_truncation(
        self, log: Log, offset: int, noted: Callable[[ApiError | None], None]
    ) -> None:
        self.truncations.append(offset)
        noted(None)


def test_appends_are_durable_when_the_sink_says_so(tmp_path: Path) -> None:
    log, sink = make_log(tmp_path), Sink()
    log.sink = sink
    told: list[int] = []
    log.on_durable = lambda durable: told.append(durable.durable_offset)
    append(log, count=2, leader_epoch=3)
    append(log, leader_epoch=3)
    assert (log.durable_offset, log.log_end_offset) == (0, 3)
    assert [call[:3] for call in sink.calls] == [(0, 2, 3), (2, 3, 3)]
    stored = (tmp_path / "00000000000000000000.log").read_bytes()
    assert b"".join(call[3] for call in sink.calls) == stored
    log.mark_durable(2)
    log.mark_durable(1)
    log.mark_durable(3)
    assert told == [2, 3]
    log.truncate_to(2)
    assert sink.truncations == [2]
    assert log.durable_offset == 2


def test_page_cache_topics_count_appends_at_once(tmp_path: Path) -> None:
    log, sink = make_log(tmp_path, durability="page-cache"), Sink()
    log.sink = sink
    append(log)
    assert log.durable_offset == 1
    assert sink.calls == []


# Failing disks


class FailingFiles(OsFiles):
    """A disk that takes only so many more bytes."""

    __slots__ = ("fails_truncation", "room_bytes")

    def __init__(self) -> None:
        self.room_bytes: int | None = None
        self.fails_truncation = False

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:  # type: ignore[override]
        if self.room_bytes is None:
            return os.pwrite(fd, data, position)
        taken = min(self.room_bytes, len(data))
        self.room_bytes -= taken
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, memoryview(data)[:taken], position)

    def ftruncate(self, fd: int, size_bytes: int, /) -> None:
        if self.fails_truncation:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.ftruncate(fd, size_bytes)


@pytest.mark.parametrize("fails_truncation", [False, True])
@pytest.mark.parametrize("room_bytes", [0, 1, 30, 61, 90])
def test_a_full_disk_fails_the_append_and_heals(
    tmp_path: Path, room_bytes: int, fails_truncation: bool
) -> None:
    files = FailingFiles()
    log = make_log(tmp_path, files=files)
    errors: list[OSError] = []
    log.on_storage_error = lambda _, error: errors.append(error)
    append(log, count=2, producer_id=4, epoch=0, sequence=0)
    files.room_bytes, files.fails_truncation = room_bytes, fails_truncation
    several = memoryview(
        bytearray(make_batch(producer_id=4, epoch=0, sequence=2, value=bytes(100)))
        + bytearray(make_batch(producer_id=4, epoch=0, sequence=3, value=bytes(100)))
    )
    for batches in (make_batch(producer_id=4, epoch=0, sequence=2, value=bytes(100)), several):
        failing = batches
        code = code_of(lambda b=failing: log.append_as_leader(b, 0, NOW_MS))  # type: ignore[misc]
        assert code is ErrorCode.KAFKA_STORAGE_ERROR
        assert (log.log_end_offset, offsets(log)) == (2, [0, 1])
    assert [error.errno for error in errors] == [errno.ENOSPC] * 2
    files.room_bytes, files.fails_truncation = None, False
    assert append(log, producer_id=4, epoch=0, sequence=2, value=b"short") == 2
    log.release()
    assert offsets(reopen(tmp_path)) == [0, 1, 2]


def test_a_roll_on_a_full_disk_fails_the_append_and_heals(tmp_path: Path) -> None:
    files = FailingFiles()
    log = make_log(tmp_path, files=files, segment_bytes=400, index_interval_bytes=50)
    for i in range(3):
        append(log, value=bytes(50), timestamp=NOW_MS + i)
    files.room_bytes = 0
    code = code_of(lambda: append(log, value=bytes(50)))
    assert code is ErrorCode.KAFKA_STORAGE_ERROR
    files.room_bytes = None
    assert append(log, value=bytes(50)) == 3
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert offsets(log) == [0, 1, 2, 3]
    log.close()
    assert offsets(reopen(tmp_path, clean=True)) == [0, 1, 2, 3]


@pytest.mark.parametrize("offset", [1, 5])  # both inside a batch
def test_a_truncation_that_a_full_disk_stops_can_be_repeated(tmp_path: Path, offset: int) -> None:
    files = FailingFiles()
    log = make_log(tmp_path, files=files)
    for number in range(4):
        append(log, count=2, producer_id=9, epoch=0, sequence=2 * number, leader_epoch=number)
    files.room_bytes = 0
    with pytest.raises(OSError, match="No space"):
        log.truncate_to(offset)
    files.room_bytes = None
    log.truncate_to(offset)
    end = offset - 1
    assert (log.log_end_offset, offsets(log)) == (end, list(range(end)))
    # The producer sends again what was cut off.
    assert append(log, count=2, producer_id=9, epoch=0, sequence=end, leader_epoch=7) == end
    log.release()
    again = reopen(tmp_path)
    assert offsets(again) == list(range(end + 2))
    assert again.leader_epochs.entries == log.leader_epochs.entries
    assert again.leader_epochs.entries[-1] == (7, end)


def test_a_log_that_is_offline_refuses_everything(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log)
    log.storage_error = "the disk of /data is gone"
    follower = make_batch(base_offset=1, leader_epoch=0)
    calls: list[Callable[[], object]] = [
        lambda: append(log),
        lambda: log.append_as_follower(follower),
        lambda: log.read(0, 100, 1),
        lambda: log.truncate_to(0),
        lambda: log.truncate_fully_and_start_at(0),
    ]
    for call in calls:
        assert code_of(call) is ErrorCode.KAFKA_STORAGE_ERROR
    log.config = log.config
    assert code_of(lambda: append(log)) is ErrorCode.KAFKA_STORAGE_ERROR
    log.storage_error = None
    assert append(log) == 1


def test_settings_change_while_the_log_is_open(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, value=bytes(300))
    log.config = type(log.config)(max_message_bytes=100, segment_bytes=200)
    assert code_of(lambda: append(log, value=bytes(300))) is ErrorCode.MESSAGE_TOO_LARGE
    assert append(log) == 1
    assert len(log.segments) == 2


def test_records_keep_their_keys_values_and_headers(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    record = Record(0, NOW_MS, b"key", None, [("trace", b"1"), ("empty", None)])
    log.append_as_leader(memoryview(encode_batch([record])), 0, NOW_MS)
    assert read_all(log) == [record]
    assert FILES.exists(log.segments[0].path)
