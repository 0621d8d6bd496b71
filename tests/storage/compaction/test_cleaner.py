from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from tests.storage.compaction_history import ignore_bytes
from tidelog.protocol.control_records import encode_end_marker
from tidelog.protocol.records import Record, decode_batches, encode_batch
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.append_result import Origin
from tidelog.storage.compaction.cleaner import CHECKPOINT_NAME, Cleaner, measure
from tidelog.storage.compaction.compaction import (
    CompactedGroup,
    CompactionEvent,
    CompactionTask,
    compact,
    run_task,
)
from tidelog.storage.compaction.segment_swap import begin_swap, undo_swap
from tidelog.storage.directories.offset_checkpoint import read_offsets
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_loading import open_log
from tidelog.testing.faults import FaultyFiles, PowerCut
from tidelog.testing.inline_world import InlineWorker, InlineWorld
from tidelog.testing.simulation.disk import SimulatedDisk
from tidelog.world.files import Files, StrPath
from tidelog.world.operating_system.files import OsFiles

ORDERS = TopicPartition("orders", 0)
COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.1,
    delete_retention_ms=100,
    segment_bytes=10_000,
)


OnEvent = Callable[[CompactionEvent], None]


class InlineCompaction:
    """Carries out a pass where it is asked for, or, while `holds`, keeps the events back."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.holds = False
        self.tasks: list[CompactionTask] = []
        self.held: list[tuple[CompactionTask, OnEvent]] = []

    def submit(self, task: CompactionTask, on_event: OnEvent) -> None:
        self.tasks.append(task)
        if self.holds:
            self.held.append((task, on_event))
        else:
            self.work(task, on_event)

    def work(self, task: CompactionTask, on_event: OnEvent) -> None:
        for event in run_task(task, self.files, ignore_bytes):
            on_event(event)

    def go_on(self) -> None:
        held, self.held = self.held, []
        for task, on_event in held:
            self.work(task, on_event)

    def close(self) -> None:
        pass


class Shop:
    """A directory with compacted logs and a cleaner at work on them."""

    def __init__(self, root: Path, files: Files | None = None, config: LogConfig = COMPACTED):
        self.root = root
        self.files: Files = files or OsFiles()
        self.config = config
        self.logs: dict[TopicPartition, Log] = {}
        self.worker = InlineCompaction(self.files)
        self.cleaner = Cleaner(
            self.logs,
            self.worker,
            InlineWorker(),
            self.files,
            post=lambda callback: callback(),
            last_stable_offset=lambda log: (
                log.log_end_offset
                if log.first_unstable_offset is None
                else log.first_unstable_offset
            ),
        )

    def open(self, name: TopicPartition = ORDERS, config: LogConfig | None = None) -> Log:
        directory = self.root / f"{name.topic}-{name.partition}"
        log = open_log(directory, name, config or self.config, world=InlineWorld(self.files))
        self.logs[name] = log
        return log


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def append(log: Log, *records: tuple[bytes, bytes | None], timestamp: int = 1000) -> None:
    rows = [Record(i, timestamp, key, value) for i, (key, value) in enumerate(records)]
    log.append_as_leader(memoryview(encode_batch(rows)), 0, timestamp)


def transact(log: Log, producer_id: int, *records: tuple[bytes, bytes | None]) -> None:
    rows = [Record(i, 1000, key, value) for i, (key, value) in enumerate(records)]
    batch = encode_batch(
        rows, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log.append_as_leader(memoryview(batch), 0, 1000)


def end(log: Log, producer_id: int, *, commit: bool) -> None:
    marker = encode_end_marker(
        producer_id=producer_id,
        producer_epoch=0,
        is_commit=commit,
        coordinator_epoch=0,
        timestamp_ms=1000,
    )
    log.append_as_leader(memoryview(marker), 0, 1000, origin=Origin.COORDINATOR)


def read(log: Log, files: Files | None = None) -> list[tuple[int, bytes | None, bytes | None]]:
    """Everything in the log, read as a fetch reads it."""
    rows: list[tuple[int, bytes | None, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, log.log_end_offset)
        if found.file_slice is not None:
            for header, records in decode_batches(found.file_slice.read(files or OsFiles())):
                if not header.is_control:
                    rows += [(record.offset, record.key, record.value) for record in records]
        if found.next_offset <= offset:
            break
        offset = found.next_offset
    return rows


def table(log: Log, files: Files | None = None) -> dict[bytes | None, bytes]:
    latest = {key: value for _, key, value in read(log, files)}
    return {key: value for key, value in latest.items() if value is not None}


def test_a_dirty_log_is_cleaned_and_reads_on(shop: Shop) -> None:
    log = shop.open()
    for number in range(30):
        append(log, (b"k%d" % (number % 3), b"%d" % number))
        if number % 5 == 4:
            log.roll(0)
    end_offset = log.log_end_offset

    assert shop.cleaner.tick(0) is False  # inline: the pass is over already

    assert read(log) == [(27, b"k0", b"27"), (28, b"k1", b"28"), (29, b"k2", b"29")]
    assert log.log_end_offset == end_offset
    assert len(log.segments) == 2
    append(log, (b"k0", b"more"))
    assert read(log)[-1] == (30, b"k0", b"more")
    assert shop.cleaner.counts.passes == 1
    assert shop.cleaner.counts.records_after == 3


def test_the_cleaned_part_is_remembered_in_kafkas_checkpoint(shop: Shop) -> None:
    log = shop.open()
    append(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(0)
    shop.cleaner.tick(0)

    path = shop.root / CHECKPOINT_NAME
    assert path.read_text() == "0\n1\norders 0 2\n"
    assert read_offsets(OsFiles(), path) == {ORDERS: 2}
    # Nothing is dirty any more, also for the cleaner of the next start.
    assert shop.cleaner.dirtiest(0) is None
    after_restart = Shop(shop.root)
    after_restart.open()
    assert after_restart.cleaner.dirtiest(0) is None


@pytest.mark.parametrize("content", ["nonsense", "0\n1\norders 0 999\n"])
def test_a_checkpoint_that_cannot_be_true_means_cleaning_from_the_start(
    shop: Shop, content: str
) -> None:
    log = shop.open()
    append(log, (b"a", b"1"))
    (shop.root / CHECKPOINT_NAME).write_text(content)
    assert shop.cleaner.first_dirty_offset(log) == 0


def test_the_dirtiest_log_comes_first(shop: Shop) -> None:
    clean, dirty = TopicPartition("clean", 0), TopicPartition("dirty", 0)
    for name in (clean, dirty):
        log = shop.open(name)
        append(log, (b"a", b"1" * 100))
        log.roll(0)
    while shop.cleaner.dirtiest(0) is not None:
        shop.cleaner.tick(0)
    for name, batches in ((clean, 1), (dirty, 5)):
        log = shop.logs[name]
        for _ in range(batches):
            append(log, (b"a", b"2" * 100))
        log.roll(0)

    chosen = shop.cleaner.dirtiest(0)

    assert chosen is not None
    assert chosen.log is shop.logs[dirty]
    assert shop.cleaner.counts.dirtiest_ratio == pytest.approx(5 / 6)


def test_a_log_that_is_not_dirty_enough_waits(shop: Shop) -> None:
    log = shop.open(config=replace(COMPACTED, min_cleanable_dirty_ratio=0.6))
    append(log, (b"a", b"1"))
    log.roll(0)
    shop.cleaner.tick(0)
    append(log, (b"a", b"2"))
    log.roll(0)
    assert shop.cleaner.dirtiest(0) is None  # one half is dirty
    append(log, (b"a", b"3"))
    log.roll(0)
    assert shop.cleaner.dirtiest(0) is not None


def test_logs_that_are_not_compacted_are_left_alone(shop: Shop) -> None:
    log = shop.open(config=LogConfig())
    append(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(0)
    assert shop.cleaner.dirtiest(0) is None


def test_young_records_are_not_cleaned(shop: Shop) -> None:
    log = shop.open(config=replace(COMPACTED, min_compaction_lag_ms=500))
    append(log, (b"a", b"1"), timestamp=1000)
    log.roll(0)
    append(log, (b"a", b"2"), timestamp=2000)
    log.roll(0)
    assert measure(log, 0, 2, 2400).first_uncleanable_offset == 1
    assert measure(log, 0, 2, 2500).first_uncleanable_offset == 2


def test_old_records_are_cleaned_however_clean_the_log_is(shop: Shop) -> None:
    config = replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=500)
    log = shop.open(config=config)
    append(log, (b"a", b"1"), (b"a", b"2"), timestamp=1000)
    log.roll(0)
    assert shop.cleaner.dirtiest(1500) is None
    assert shop.cleaner.dirtiest(1501) is not None


def test_the_active_segment_is_closed_when_it_has_to_be_cleaned(shop: Shop) -> None:
    log = shop.open(config=replace(COMPACTED, max_compaction_lag_ms=500))
    append(log, (b"a", b"1"), timestamp=1000)
    append(log, (b"a", b"2"), timestamp=1500)
    assert len(log.segments) == 1
    append(log, (b"a", b"3"), timestamp=1501)
    assert len(log.segments) == 2


def test_an_open_transaction_bounds_the_cleaning(shop: Shop) -> None:
    log = shop.open()
    append(log, (b"a", b"1"))
    log.roll(0)
    transact(log, 7, (b"a", b"2"))
    log.roll(0)
    append(log, (b"a", b"3"))
    log.roll(0)
    dirty = shop.cleaner.dirtiest(0)
    assert dirty is not None
    assert dirty.first_uncleanable_offset == 1
    end(log, 7, commit=False)
    log.roll(0)

    shop.cleaner.tick(0)

    assert read(log) == [(2, b"a", b"3")]


def test_an_aborted_transaction_across_segments_goes_and_its_index_follows(shop: Shop) -> None:
    log = shop.open()
    append(log, (b"a", b"1"))
    transact(log, 7, (b"a", b"never"))
    log.roll(0)
    end(log, 7, commit=False)
    append(log, (b"b", b"1"))
    log.roll(0)

    shop.cleaner.tick(0)

    assert read(log) == [(0, b"a", b"1"), (3, b"b", b"1")]
    [aborted] = log.aborted_transactions(0, log.log_end_offset)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 1, 2)
    log.close()
    reopened = shop.open()
    assert reopened.aborted_transactions(0, 4) == [aborted]


def test_producers_go_on_in_sequence_after_compaction_and_restart(shop: Shop) -> None:
    log = shop.open()
    batch = encode_batch(
        [Record(0, 1000, b"a", b"1")], producer_id=5, producer_epoch=0, base_sequence=0
    )
    log.append_as_leader(memoryview(batch), 0, 1000)
    append(log, (b"a", b"2"))
    log.roll(0)
    shop.cleaner.tick(0)
    assert read(log) == [(1, b"a", b"2")]
    log.close()
    for snapshot in (shop.root / "orders-0").glob("*.snapshot"):
        snapshot.unlink()  # the state has to come from the log itself

    log = shop.open()

    state = log.producers.get(5)
    assert state is not None
    assert state.last_sequence == 0


def test_compact_and_delete_work_together(shop: Shop) -> None:
    both = replace(COMPACTED, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000)
    log = shop.open(config=both)
    append(log, (b"a", b"1"), timestamp=1000)
    log.roll(0)
    append(log, (b"b", b"1"), timestamp=5000)
    log.roll(0)
    shop.worker.holds = True
    shop.cleaner.tick(5000)

    log.delete_old_segments(5000, log.log_end_offset)  # while the pass is under way
    shop.worker.go_on()

    assert read(log) == [(1, b"b", b"1")]
    assert shop.cleaner.counts.abandoned_passes == 1
    assert not list(log.directory.glob("*.cleaned"))
    shop.worker.holds = False
    shop.cleaner.tick(5000)
    assert read(log) == [(1, b"b", b"1")]
    assert shop.cleaner.first_dirty_offset(log) == 2


def test_a_log_deleted_during_the_pass_ends_it(shop: Shop) -> None:
    log = shop.open()
    append(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(0)
    shop.worker.holds = True
    shop.cleaner.tick(0)
    del shop.logs[ORDERS]
    shop.worker.go_on()
    assert not shop.cleaner.is_busy
    assert not list(log.directory.glob("*.cleaned"))
    assert not list(log.directory.glob("*.swap"))


def test_a_slice_taken_before_the_swap_stays_readable(shop: Shop) -> None:
    log = shop.open()
    append(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(0)
    found = log.read(0, 1000, 2)
    shop.cleaner.tick(0)
    assert found.file_slice is not None
    [(_, records)] = decode_batches(found.file_slice.read(OsFiles()))
    assert [record.value for record in records] == [b"1", b"2"]


def test_a_damaged_log_is_left_as_it_is_and_not_tried_again(shop: Shop) -> None:
    log = shop.open()
    append(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(0)
    path = log.segments[0].path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)

    shop.cleaner.tick(0)

    assert list(shop.cleaner.uncleanable) == [log]
    assert shop.cleaner.dirtiest(0) is None
    assert path.read_bytes() == content


def test_offsets_by_time_are_found_after_compaction(shop: Shop) -> None:
    log = shop.open()
    for number in range(20):
        append(log, (b"k%d" % (number % 4), b"x" * 200), timestamp=1000 + number)
    log.roll(0)
    shop.cleaner.tick(0)
    found = log.offset_for_timestamp(1017)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (1017, 17)


def write_history(log: Log) -> None:
    append(log, (b"a", b"1"), (b"b", b"1"))
    transact(log, 7, (b"a", b"never"), (b"c", b"never"))
    log.roll(0)
    append(log, (b"b", b"2"), (b"d", b"1"))
    end(log, 7, commit=False)
    log.roll(0)
    append(log, (b"d", None), (b"a", b"3"))
    log.roll(0)
    append(log, (b"e", b"1"))
    log.flush()
    log.files.sync_directory(log.directory)
    log.files.sync_directory(log.directory.parent)


def visible(log: Log, files: Files) -> dict[bytes | None, bytes]:
    """The table a read_committed consumer ends up with."""
    aborted = log.aborted_transactions(0, log.log_end_offset)
    rows = [
        (key, value)
        for offset, key, value in read(log, files)
        if not any(a.first_offset <= offset <= a.last_offset and value == b"never" for a in aborted)
    ]
    return {key: value for key, value in dict(rows).items() if value is not None}


EXPECTED = {b"a": b"3", b"b": b"2", b"e": b"1"}


def operations_of_a_pass(root: Path) -> int:
    shop = Shop(root, FaultyFiles(root))
    write_history(shop.open())
    assert isinstance(shop.files, FaultyFiles)
    before = shop.files.operations
    shop.cleaner.tick(0)
    assert visible(shop.logs[ORDERS], shop.files) == EXPECTED
    return shop.files.operations - before


def test_a_power_cut_at_any_step_leaves_one_valid_log(tmp_path: Path) -> None:
    """After each operation of a pass, with several outcomes of what had reached the disk."""
    count = operations_of_a_pass(tmp_path / "whole")
    assert count > 20
    for step in range(count + 1):
        root = tmp_path / f"step-{step}"
        files = FaultyFiles(root)
        shop = Shop(root, files)
        log = shop.open()
        write_history(log)
        files.cut_after = files.operations + step
        try:
            shop.cleaner.tick(0)
        except PowerCut:
            pass
        for seed in range(3):
            target = tmp_path / f"step-{step}-after-{seed}"
            recovered = Shop(target, files.power_cut(target, seed))
            log = recovered.open()
            assert log.log_end_offset == 10, (step, seed)
            assert visible(log, recovered.files) == EXPECTED, (step, seed)
            recovered.cleaner.tick(0)
            recovered.cleaner.tick(1000)
            assert visible(log, recovered.files) == EXPECTED, (step, seed)
            left = {path.suffix for path in log.directory.iterdir()}
            assert not left & {".cleaned", ".swap"}, (step, seed)


def test_a_killed_process_at_any_step_leaves_one_valid_log(tmp_path: Path) -> None:
    """The machine goes on: everything written is there, nothing after it happened."""
    count = operations_of_a_pass(tmp_path / "whole")
    for step in range(count + 1):
        root = tmp_path / f"step-{step}"
        files = FaultyFiles(root)
        shop = Shop(root, files)
        write_history(shop.open())
        files.cut_after = files.operations + step
        try:
            shop.cleaner.tick(0)
        except PowerCut:
            pass
        after = Shop(root)
        log = after.open()
        assert visible(log, after.files) == EXPECTED, step
        assert log.log_end_offset == 10


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_disk_error_at_any_step_leaves_one_valid_log(kind: Literal["write", "sync"]) -> None:
    """Then the process is killed, or the power goes a few operations later."""
    step = 1
    while all(_pass_with_error(kind, step, left) for left in (None, 1, 2, 3, 4, 6, 8)):
        step += 1
    assert step > 5


def _pass_with_error(kind: Literal["write", "sync"], step: int, left: int | None) -> bool:
    """Whether the pass came to the operation that fails."""
    disk = SimulatedDisk(Random(step), directories=["/data"])
    shop = Shop(Path("/data"), disk.files())
    log = shop.open()
    write_history(log)

    def take_offline(failed: Log, error: OSError) -> None:
        failed.storage_error = str(error)

    log.on_storage_error = take_offline
    disk.on_error = lambda *_: disk.end_after_operations(left)
    disk.fail_once(kind, after=step)
    with suppress(PowerCut):
        shop.cleaner.tick(0)
    if disk.is_in_doubt:
        disk.power_cut()
    elif not disk.is_cut:
        disk.kill()
    disk.heal()
    again = Shop(Path("/data"), disk.files())
    log = again.open()
    assert visible(log, again.files) == EXPECTED, (step, left)
    assert (log.log_start_offset, log.log_end_offset) == (0, 10), (step, left)
    return disk.errors > 0


class FillingUp(FaultyFiles):
    """A disk without any room, for names neither, from its `full_after`th operation on."""

    full_after: int | None = None

    def _change(self, path: StrPath, *, is_sync: bool = False) -> None:
        if self.full_after is not None and self.operations >= self.full_after:
            self.has_room_for_names = False
            self.space_bytes = self.used_bytes
        super()._change(path, is_sync=is_sync)

    def heal(self) -> None:
        self.full_after = None
        super().heal()


def names_left(log: Log) -> list[str]:
    """Files of a swap that should be done or undone."""
    return [name for name in os.listdir(log.directory) if name.endswith((".cleaned", ".swap"))]


def shop_that_fills_up(root: Path, step: int) -> tuple[Shop, FillingUp]:
    files = FillingUp(root)
    shop = Shop(root, files)
    log = shop.open()
    write_history(log)
    files.full_after = files.operations + step

    def fail(log: Log, error: OSError) -> None:
        raise AssertionError(f"the directory is taken offline: {error}")

    log.on_storage_error = fail
    return shop, files


def test_a_disk_that_is_full_from_any_step_on_leaves_the_log_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = 0
    for step in range(operations_of_a_pass(tmp_path / "whole") + 1):
        caplog.clear()
        shop, files = shop_that_fills_up(tmp_path / f"step-{step}", step)
        log = shop.logs[ORDERS]
        before = [segment.base_offset for segment in log.segments]
        shop.cleaner.tick(0)
        assert visible(log, files) == EXPECTED, step
        assert not names_left(log), step
        if not shop.cleaner.counts.passes:
            refused += 1
            assert [segment.base_offset for segment in log.segments] == before, step
            shop.cleaner.tick(0)
            told = [each.getMessage() for each in caplog.records]
            assert len(told) == 1, step
            assert "compaction waits until the disk has room" in told[0]
            files.heal()
            shop.cleaner.tick(0)
        assert shop.cleaner.counts.passes == 1, step
        assert visible(log, files) == EXPECTED, step
        assert len(log.segments) < len(before), step
        assert not names_left(log), step
        files.heal()
        reopened = Shop(files.root, files).open()
        assert visible(reopened, files) == EXPECTED, step
    assert refused > 10


@pytest.mark.parametrize("left", [1, 2, 3, 5, 8])
def test_a_power_cut_while_a_full_disk_refuses_a_pass_leaves_one_valid_log(
    tmp_path: Path, left: int
) -> None:
    for step in range(operations_of_a_pass(tmp_path / "whole") + 1):
        shop, files = shop_that_fills_up(tmp_path / f"step-{step}", step)
        files.cut_after = files.operations + step + left
        with suppress(PowerCut):
            shop.cleaner.tick(0)
        for seed in range(2):
            target = tmp_path / f"step-{step}-after-{seed}"
            recovered = Shop(target, files.power_cut(target, seed))
            log = recovered.open()
            assert log.log_end_offset == 10, (step, seed)
            assert visible(log, recovered.files) == EXPECTED, (step, seed)
            assert not names_left(log), (step, seed)


class WithoutWayBack(FaultyFiles):
    """A directory that has no room for the names that a swap began with."""

    is_full = False

    def rename(self, source: StrPath, target: StrPath, /) -> None:
        if self.is_full and str(target).endswith(".cleaned"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        super().rename(source, target)


def test_a_swap_is_undone_without_room_for_the_names_it_began_with(tmp_path: Path) -> None:
    """After each operation of that the power goes: what is left of the swap must not count."""
    step = 0
    while True:
        files = WithoutWayBack(tmp_path / f"step-{step}")
        shop = Shop(files.root, files)
        log = shop.open()
        write_history(log)
        shop.worker.holds = True
        shop.cleaner.tick(0)
        [(task, _)] = shop.worker.held
        group = next(each for each in compact(task, files, ignore_bytes))
        assert isinstance(group, CompactedGroup)
        begin_swap(files, log.directory, group.base_offset)
        files.is_full = True
        files.cut_after = files.operations + step
        is_undone = True
        try:
            undo_swap(files, log.directory, group.base_offset)
        except PowerCut:
            is_undone = False
        files.is_full = False
        for seed in range(4):
            target = tmp_path / f"step-{step}-after-{seed}"
            recovered = Shop(target, files.power_cut(target, seed))
            assert visible(recovered.open(), recovered.files) == EXPECTED, (step, seed)
            assert not names_left(recovered.logs[ORDERS]), (step, seed)
        if is_undone:
            break
        step += 1
    assert step > 3


def test_a_log_that_lacks_room_waits_behind_those_that_may_find_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the dirtiest, so without that nothing else would be cleaned."""
    files = FaultyFiles(tmp_path)
    shop = Shop(tmp_path, files)
    large, small = shop.open(), shop.open(TopicPartition("orders", 1))
    for number in range(20):
        append(large, (b"k%d" % number, bytes(1000)))
    large.roll(0)
    append(small, (b"k", b"0"), timestamp=1000)
    small.roll(0)
    shop.cleaner.tick(0)
    shop.cleaner.tick(0)
    for batch in range(3):  # one record of each goes
        keys = [b"twice", *(b"%d-%d" % (batch, number) for number in range(8))]
        append(large, *((key, bytes(900)) for key in keys))
    append(small, (b"k", b"1"))
    for log in (large, small):
        log.roll(0)
    first = shop.cleaner.dirtiest(0)
    assert first is not None
    assert first.log is large
    passes = shop.cleaner.counts.passes
    files.space_bytes = files.used_bytes + 2000
    for _ in range(2):
        shop.cleaner.tick(0)
    assert shop.cleaner.counts.passes == passes + 1
    assert len(read(small, files)) == 1
    assert shop.cleaner.dirtiest(0) is not None
    files.heal()
    shop.cleaner.tick(0)
    assert shop.cleaner.counts.passes == passes + 2
    assert shop.cleaner.dirtiest(0) is None


def test_a_disk_that_does_not_read_the_checkpoint_is_told_of_and_other_logs_are_cleaned(
    tmp_path: Path,
) -> None:
    files = FaultyFiles(tmp_path)
    shop = Shop(tmp_path, files)
    broken = shop.open()
    told: list[tuple[Log, OSError]] = []
    broken.on_storage_error = lambda log, error: told.append((log, error))
    write_history(broken)
    (tmp_path / CHECKPOINT_NAME).write_text("0\n0\n")
    files.fail(tmp_path / CHECKPOINT_NAME)
    sound = open_log(
        tmp_path / "other" / "orders-1",
        TopicPartition("orders", 1),
        COMPACTED,
        world=InlineWorld(files),
    )
    write_history(sound)
    shop.logs[sound.topic_partition] = sound
    shop.cleaner.tick(0)
    assert [(log, error.errno) for log, error in told] == [(broken, errno.EIO)]
    assert [task.directory for task in shop.worker.tasks] == [str(sound.directory)]


def test_a_disk_that_does_not_read_a_log_is_told_of_and_ends_no_cleaning() -> None:
    config = replace(COMPACTED, max_compaction_lag_ms=1)
    step = told = 0
    while True:
        step += 1
        disk = SimulatedDisk(Random(step), directories=["/data"])
        shop = Shop(Path("/data"), disk.files(), config)
        log = shop.open()
        write_history(log)
        log.close()
        world = InlineWorld(shop.files)
        shop.logs[ORDERS] = log = open_log(log.directory, ORDERS, config, world=world, clean=True)
        errors: list[OSError] = []
        log.on_storage_error = lambda _, error, errors=errors: errors.append(error)
        disk.fail_once("read", after=step)
        shop.cleaner.tick(10_000)
        if not disk.errors:
            break
        told += bool(errors)
        shop.cleaner.tick(10_000)
        assert shop.cleaner.counts.passes == 1, step
        assert visible(log, shop.files) == EXPECTED, step
    assert 0 < told < step - 1
