"""Truncation in a running store: the loop does not wait for the disk, no crash breaks the log."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.store_cases import (
    ORDERS,
    SMALL,
    TOPIC_ID,
    Loop,
    append,
    open_store,
    values_of,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.storage.store_options import StoreOptions
from tidelog.testing.faults import FaultyFiles, PowerCut
from tidelog.testing.inline_world import InlineWorld
from tidelog.world.operating_system import OperatingSystem
from tidelog.world.operating_system.files import OsFiles

OTHER = TopicPartition("other", 0)
WAIT_S = 30
Outcome = ApiError | OSError | None


class SlowDisk(OsFiles):
    """Files whose syncs wait until it `goes_on`."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        real_sync = OsFiles.fdatasync

        def fdatasync(fd: int, /) -> None:
            assert self.goes_on.wait(WAIT_S)
            real_sync(fd)

        self.fdatasync = fdatasync  # type: ignore[assignment]


class Running:
    """A store with threads, a slow disk, and a log of three batches that is durable."""

    def __init__(self, directory: Path) -> None:
        self.loop = Loop()
        self.disk = SlowDisk()
        self.store = LogStore.open(
            [directory],
            SMALL,
            world=OperatingSystem(self.disk),
            post=self.loop.post,
        )
        self.log = self.store.create(ORDERS, TOPIC_ID, LogConfig())
        for value in (b"a", b"b", b"c"):
            append(self.log, value)
        self.store.commit()
        self.loop.run_until(lambda: self.log.durable_offset == 3)
        self.outcomes: list[Outcome] = []

    def done(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def wait(self, count: int = 1) -> list[Outcome]:
        self.disk.goes_on.set()
        self.loop.run_until(lambda: len(self.outcomes) == count)
        return self.outcomes


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


@pytest.mark.parametrize("offset", [2, 0], ids=["in part", "fully"])
def test_a_truncation_does_not_wait_for_the_disk(running: Running, offset: int) -> None:
    log = running.log
    running.disk.goes_on.clear()
    log.truncate_to(offset, running.done)
    assert log.is_truncating
    assert running.outcomes == []
    # Until it is noted on disk, readers see the log as it was, and nothing changes it.
    assert values_of(log) == [b"a", b"b", b"c"]
    with pytest.raises(ApiError) as refused:
        append(log, b"d")
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert running.wait() == [None]
    assert (log.log_end_offset, log.durable_offset) == (offset, offset)
    assert append(log, b"d") == offset + 1
    running.store.commit()
    running.loop.run_until(lambda: log.durable_offset == offset + 1)
    running.store.close()


def test_truncations_happen_one_after_the_other(running: Running) -> None:
    log = running.log
    running.disk.goes_on.clear()
    log.truncate_to(2, running.done)
    log.truncate_to(1, running.done)
    log.truncate_to(3, running.done)  # the log is shorter by then
    assert running.wait(3) == [None, None, None]
    assert values_of(log) == [b"a"]
    running.store.close()


def test_a_truncation_that_waits_is_told_when_the_disk_fails(running: Running) -> None:
    running.disk.goes_on.clear()
    running.log.truncate_to(2, running.done)
    running.log.truncate_to(1, running.done)
    running.log.storage_error = "the disk has failed"
    first, second = running.wait(2)
    assert first is None
    assert isinstance(second, ApiError)
    assert second.code == ErrorCode.KAFKA_STORAGE_ERROR
    running.store.close(clean=False)


def test_a_checkpoint_waits_for_a_truncation(running: Running) -> None:
    """Else it would write down a recovery point above the cut, and forget about the cut."""
    log = running.log
    running.disk.goes_on.clear()
    log.truncate_to(1, running.done)
    running.store.checkpoint()
    running.wait()
    running.store.close(clean=False)
    again = open_store(log.directory.parent)
    assert values_of(again.logs[ORDERS]) == [b"a"]
    again.close()


def test_a_log_that_is_deleted_meanwhile_is_not_truncated(running: Running) -> None:
    running.disk.goes_on.clear()
    running.log.truncate_to(1, running.done)
    running.store.delete(ORDERS)
    running.store.commit()
    (outcome,) = running.wait()
    assert isinstance(outcome, ApiError)
    running.store.close()


def test_a_truncation_that_cannot_be_noted_changes_nothing(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files=files)
    log = store.create(ORDERS, TOPIC_ID, LogConfig())
    append(log, b"a")
    append(log, b"b")
    store.commit()
    files.fail(tmp_path / "journal", only="sync")
    outcomes: list[Outcome] = []
    log.truncate_to(1, outcomes.append)
    (outcome,) = outcomes
    assert isinstance(outcome, ApiError)
    assert outcome.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 2
    store.close()


# Crashes

OLD = [b"old %d " % number + bytes(200) for number in range(8)]
NEW = [b"new %d " % number + bytes(200) for number in range(6)]


class Crashes:
    """One story on a disk that loses power at a given operation; the loop runs when it is told."""

    def __init__(self, directory: Path, options: StoreOptions, cut_after: int | None) -> None:
        self.files = FaultyFiles(directory)
        self.calls: deque[Callable[[], None]] = deque()
        self.files.cut_after = cut_after
        self.options = options
        self.acknowledged: list[bytes] = []
        self.may_be_there = [OLD]
        self.operations_before = 0

    def run(self, *, checkpoint: bool, offset: int, in_same_turn: bool) -> None:
        store = LogStore.open(
            [self.files.root],
            self.options,
            world=InlineWorld(self.files, now_ms=1000),
            post=self.calls.append,
        )
        log = store.create(ORDERS, TOPIC_ID, LogConfig(segment_bytes=900, index_interval_bytes=1))
        other = store.create(OTHER, bytes(range(2, 18)), LogConfig())
        for value in OLD:
            self._append(store, log, value)
        if checkpoint:
            store.checkpoint()
            self._loop()
        # From here on the old records above the cut may be there or not.
        self.operations_before = self.files.operations
        self.acknowledged = OLD[:offset]
        self.may_be_there = [[*OLD, bytes(200)] if in_same_turn else OLD, [*OLD[:offset], *NEW]]
        if in_same_turn:
            append(log, bytes(200))
        outcomes: list[Outcome] = []
        log.truncate_to(offset, outcomes.append)
        append(other, b"meanwhile")
        store.commit()
        store.checkpoint()
        store.maintain(10**9)
        self._loop()
        assert outcomes == [None]
        for number, value in enumerate(NEW):
            self._append(store, log, value)
            if number == 3:
                store.checkpoint()
                self._loop()
        store.close(clean=False)

    def _append(self, store: LogStore, log: Log, value: bytes) -> None:
        append(log, value)
        store.commit()
        self._loop()
        assert log.durable_offset == log.log_end_offset
        self.acknowledged = [*self.acknowledged, value]

    def _loop(self) -> None:
        while self.calls:
            self.calls.popleft()()

    def check_after_power_cut(self, target: Path, seed: int) -> None:
        after = self.files.power_cut(target, seed)
        store = open_store(after.root, files=after, options=self.options)
        found = values_of(store.logs[ORDERS]) if ORDERS in store.logs else []
        assert found[: len(self.acknowledged)] == self.acknowledged
        assert any(found == whole[: len(found)] for whole in self.may_be_there), found
        if ORDERS in store.logs:
            append(store.logs[ORDERS], b"after")
            store.commit()
            assert values_of(store.logs[ORDERS]) == [*found, b"after"]
        store.close()


@pytest.mark.parametrize(
    ("offset", "checkpoint", "direct_sync_bytes", "in_same_turn"),
    [
        (5, True, 1 << 30, False),
        (5, True, 800, True),
        (5, False, 800, True),
        (0, True, 800, False),
        (0, False, 1 << 30, True),
    ],
)
def test_no_crash_around_a_truncation_breaks_the_log(
    tmp_path: Path, offset: int, checkpoint: bool, direct_sync_bytes: int, in_same_turn: bool
) -> None:
    """Cut at every operation: a prefix of the old log, or of what replaced its end, with all that
    was acknowledged."""
    options = replace(
        SMALL,
        journal_file_bytes=16 << 10,
        journal_first_file_bytes=16 << 10,
        direct_sync_bytes=direct_sync_bytes,
        checkpoint_interval_ms=10**12,
    )

    def story(name: str, cut_after: int | None) -> Crashes:
        crashes = Crashes(tmp_path / name, options, cut_after)
        try:
            crashes.run(checkpoint=checkpoint, offset=offset, in_same_turn=in_same_turn)
        except PowerCut:
            pass
        return crashes

    whole = story("whole", None)
    for cut_after in range(whole.operations_before, whole.files.operations):
        story(f"{cut_after}", cut_after).check_after_power_cut(tmp_path / "after", cut_after)
