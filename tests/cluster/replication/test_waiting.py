"""Waits on a partition: each ends once, by progress, loss of the lead, deletion or time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path

import pytest

from tests.cluster.replication.test_partition import NOW, TOPIC_ID, ManualSink, append, state
from tidelog.cluster.replication.partition import Partition
from tidelog.cluster.replication.waiting import COMMITTED, DURABLE, END, Waiting
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_loading import open_log
from tidelog.testing.inline_world import InlineWorld


class Clock:
    """The loop's time and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, callback))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer[0] <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for _, callback in due:
            callback()


class Recorder:
    """A waiter that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, ErrorCode]] = []

    def reached(self, place: int, /) -> None:
        self.told.append((place, ErrorCode.NONE))

    def refused(self, place: int, code: ErrorCode, /) -> None:
        self.told.append((place, code))


class Shop:
    def __init__(self, log: Log) -> None:
        self.clock = Clock()
        self.bugs = 0
        self.waiting = Waiting(lambda: self.clock.now, self.clock.call_later, self._note_bug)
        self.log = log
        self.partition = Partition("orders", 0, TOPIC_ID, 1, log, self.waiting)
        self.partition.lead(state(), NOW)
        self.waiter = Recorder()

    def _note_bug(self) -> None:
        self.bugs += 1

    def wait(self, kind: int, offset: int, place: int = 0, deadline: float = 100.0) -> None:
        self.waiting.wait(
            self.partition,
            self.partition.leader_epoch,
            kind,
            offset,
            self.waiter,
            place,
            deadline,
        )

    def told(self) -> list[tuple[int, ErrorCode]]:
        """What the waiter was told at the end of this turn."""
        self.waiting.serve()
        told, self.waiter.told = self.waiter.told, []
        return told


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    log = open_log(
        tmp_path / "orders-0",
        TopicPartition("orders", 0),
        LogConfig(),
        world=InlineWorld(now_ms=NOW),
        topic_id=TOPIC_ID,
        sink=ManualSink(),
    )
    yield Shop(log)
    log.close()


def test_each_kind_is_reached_when_its_offset_is_and_once(shop: Shop) -> None:
    shop.partition.lead(state(partition_epoch=1, replicas=(1, 2), isr=(1, 2)), NOW)
    for kind in (COMMITTED, DURABLE, END):
        shop.wait(kind, 1, place=kind)
    assert shop.told() == []
    append(shop.partition)
    assert shop.told() == [(END, ErrorCode.NONE)]
    shop.log.mark_durable(1)
    assert shop.told() == [(DURABLE, ErrorCode.NONE)]  # though a follower lags
    shop.partition.record_follower_fetch(2, 1, 0, NOW)
    assert shop.told() == [(COMMITTED, ErrorCode.NONE)]
    append(shop.partition)
    shop.log.mark_durable(2)
    assert shop.told() == []
    assert shop.waiting.count == 0


def test_nobody_is_called_before_the_turn_ends(shop: Shop) -> None:
    shop.wait(COMMITTED, 1)
    append(shop.partition)
    shop.log.mark_durable(1)
    assert shop.waiter.told == []
    assert shop.told() == [(0, ErrorCode.NONE)]


def test_what_is_there_already_is_told_at_the_end_of_the_turn(shop: Shop) -> None:
    append(shop.partition)
    shop.log.mark_durable(1)
    shop.wait(COMMITTED, 1)
    assert shop.told() == [(0, ErrorCode.NONE)]


def test_waits_are_served_in_the_order_of_their_offsets(shop: Shop) -> None:
    for offset in (3, 1, 2, 3, 1):
        shop.wait(COMMITTED, offset, place=offset)
    append(shop.partition, NOW, NOW)
    shop.log.mark_durable(2)
    assert [place for place, _ in shop.told()] == [1, 1, 2]
    append(shop.partition)
    shop.log.mark_durable(3)
    assert [place for place, _ in shop.told()] == [3, 3]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (
            lambda partition: partition.follow(state(leader=2, leader_epoch=1, partition_epoch=1)),
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ),
        (
            lambda partition: partition.lead(state(leader_epoch=1, partition_epoch=1), NOW),
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ),
        (lambda partition: partition.stop(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=["follows", "leads anew", "is deleted"],
)
def test_what_waits_does_not_outlive_its_leader_epoch(
    shop: Shop, change: Callable[[Partition], None], code: ErrorCode
) -> None:
    append(shop.partition)
    shop.wait(COMMITTED, 1)
    shop.wait(END, 5, place=1)
    change(shop.partition)
    # Its records may be gone by now: what becomes durable later is no answer to it.
    shop.log.mark_durable(1)
    assert sorted(shop.told()) == [(0, code), (1, code)]
    assert shop.told() == []


def test_a_wait_of_an_epoch_that_is_over_is_refused(shop: Shop) -> None:
    epoch = shop.partition.leader_epoch
    shop.partition.lead(state(leader_epoch=1, partition_epoch=1), NOW)
    shop.waiting.wait(shop.partition, epoch, COMMITTED, 0, shop.waiter)
    assert shop.told() == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_time_ends_a_wait_and_only_those_that_are_overdue(shop: Shop) -> None:
    shop.wait(COMMITTED, 1, place=1, deadline=1.0)
    shop.wait(COMMITTED, 2, place=2, deadline=0.5)
    shop.wait(COMMITTED, 3, place=3)
    shop.clock.pass_time(0.2)
    assert shop.told() == []
    shop.clock.pass_time(0.4)
    assert shop.told() == [(2, ErrorCode.REQUEST_TIMED_OUT)]
    shop.clock.pass_time(0.5)
    assert shop.told() == [(1, ErrorCode.REQUEST_TIMED_OUT)]
    assert shop.waiting.count == 1


def test_a_wait_that_is_cancelled_is_never_told(shop: Shop) -> None:
    partition = shop.partition
    wait = shop.waiting.wait(partition, partition.leader_epoch, COMMITTED, 1, shop.waiter)
    shop.waiting.cancel(partition, COMMITTED, wait)
    shop.waiting.cancel(partition, COMMITTED, wait)
    append(partition)
    shop.log.mark_durable(1)
    assert shop.told() == []


def test_one_who_fails_keeps_nobody_else_from_being_called(shop: Shop) -> None:
    class Broken:
        def reached(self, place: int, /) -> None:
            raise RuntimeError("a bug")

        def refused(self, place: int, code: ErrorCode, /) -> None:
            raise RuntimeError("a bug")

    epoch = shop.partition.leader_epoch
    for offset in (1, 2):
        shop.waiting.wait(shop.partition, epoch, COMMITTED, offset, Broken())
        shop.wait(COMMITTED, offset, place=offset)
    append(shop.partition)
    shop.log.mark_durable(1)
    assert shop.told() == [(1, ErrorCode.NONE)]
    shop.partition.stop()
    assert shop.told() == [(2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert shop.bugs == 2


def test_waits_without_a_deadline_need_no_timer(shop: Shop) -> None:
    shop.wait(COMMITTED, 9, deadline=inf)
    assert shop.clock.timers == []
    shop.wait(COMMITTED, 9, place=1, deadline=0.05)
    shop.clock.pass_time(0.2)
    assert shop.told() == [(1, ErrorCode.REQUEST_TIMED_OUT)]
    assert shop.clock.timers == []


def test_of_two_waits_for_the_same_offset_the_first_is_told_first(shop: Shop) -> None:
    shop.wait(COMMITTED, 1, place=1)
    shop.wait(COMMITTED, 2, place=3)
    shop.wait(COMMITTED, 1, place=2)
    append(shop.partition, NOW, NOW)
    shop.log.mark_durable(2)
    assert [place for place, _ in shop.told()] == [1, 2, 3]


class Watching:
    def __init__(self) -> None:
        self.turns = 0

    def moved(self) -> None:
        self.turns += 1


def test_a_watcher_hears_of_every_turn_in_which_the_partition_moved(shop: Shop) -> None:
    watching = Watching()
    shop.waiting.watch(shop.partition, watching)
    shop.waiting.serve()
    assert watching.turns == 0
    append(shop.partition)
    append(shop.partition)
    shop.waiting.serve()
    assert watching.turns == 1
    shop.partition.follow(state(leader=2, leader_epoch=1, partition_epoch=1))
    shop.waiting.serve()
    assert watching.turns == 2
    shop.waiting.unwatch(shop.partition, watching)
    shop.partition.stop()
    shop.waiting.serve()
    assert watching.turns == 2
