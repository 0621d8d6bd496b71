"""Waiting for a partition to get somewhere: one way for all who need it.

Whoever needs an offset (a produce request, a long poll, a coordinator's answer, a marker, a
follower's fetch) waits until it is at the log's end, durable, or committed, under the leader epoch
at which the wait began. Progress, loss of leadership, deletion, a failed disk and time end a wait,
each exactly once: `reached` or `refused` is called, at the end of the loop's turn. So a turn with a
thousand appends wakes a consumer once, and nobody is called in the middle of a change.

Waits of one partition and kind stand in order of their offsets, so serving them looks at those that
are due and one more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING, Protocol

from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition

# How far an offset has to come.
END = 0
"""The log's end has passed it: followers read up to there."""
DURABLE = 1
"""This replica has synced everything below it."""
COMMITTED = 2
"""The high watermark has reached it: all in-sync replicas have everything below it durable."""

_SWEEP_INTERVAL_S = 0.1


class Waiter(Protocol):
    """Somebody who waits; `place` is what they gave to know the wait by."""

    def reached(self, place: int, /) -> None:
        """The partition got there."""
        ...

    def refused(self, place: int, code: ErrorCode, /) -> None:
        """It will not, or not in time: the code says why."""
        ...


class Watcher(Protocol):
    """Somebody who wants to know of every turn in which a partition has moved."""

    def moved(self) -> None:
        """Its end, its start, its high watermark or its leader may be another one now."""
        ...


# The offset that is waited for, until when (monotonic seconds), who waits, and their place.
Wait = tuple[int, float, Waiter, int]


class PartitionWaits:
    """Those who wait for one partition at its present leader epoch, and those who watch it."""

    __slots__ = ("_by_kind", "_waiting", "is_noted", "partition", "watchers")

    def __init__(self, partition: Partition, waiting: Waiting) -> None:
        self.partition = partition
        self.is_noted = False
        self._waiting = waiting
        self._by_kind: dict[int, deque[Wait]] = {}
        self.watchers: tuple[Watcher, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self._by_kind.values()))

    def __iter__(self) -> Iterator[Wait]:
        return iter([wait for kind in sorted(self._by_kind) for wait in self._by_kind[kind]])

    def note(self) -> None:
        """The partition moved; who waits is looked at when the turn ends."""
        if not self.is_noted and (self._by_kind or self.watchers):
            self.is_noted = True
            self._waiting.noted.append(self)

    def add(self, kind: int, wait: Wait) -> None:
        waits = self._by_kind.get(kind)
        if waits is None:
            self._by_kind[kind] = deque((wait,))
        elif wait[0] >= waits[-1][0]:
            waits.append(wait)
        elif wait[0] < waits[0][0]:
            waits.appendleft(wait)
        else:
            place = next(place for place, each in enumerate(waits) if each[0] > wait[0])
            waits.insert(place, wait)

    def remove(self, kind: int, wait: Wait) -> None:
        """Forget a wait; harmless when it has ended."""
        waits = self._by_kind.get(kind)
        if waits is not None:
            try:
                waits.remove(wait)
            except ValueError:
                return
            if not waits:
                del self._by_kind[kind]

    def take_reached(self) -> list[Wait]:
        """The waits that are over because the partition got there."""
        found: list[Wait] = []
        by_kind = self._by_kind
        for kind in tuple(by_kind):
            waits = by_kind[kind]
            offset = self.offset_of(kind)
            while waits and waits[0][0] <= offset:
                found.append(waits.popleft())
            if not waits:
                del by_kind[kind]
        return found

    def take_overdue(self, now: float) -> tuple[list[Wait], bool]:
        """The waits whose time is up, and whether there are others with a deadline."""
        found: list[Wait] = []
        has_deadlines = False
        for kind in tuple(self._by_kind):
            waits = self._by_kind[kind]
            overdue = [wait for wait in waits if wait[1] <= now]
            if overdue:
                found += overdue
                waits = deque(wait for wait in waits if wait[1] > now)
                if not waits:
                    del self._by_kind[kind]
                    continue
                self._by_kind[kind] = waits
            has_deadlines = has_deadlines or any(wait[1] is not inf for wait in waits)
        return found, has_deadlines

    def take_all(self) -> list[Wait]:
        found = list(self)
        self._by_kind.clear()
        return found

    def offset_of(self, kind: int) -> int:
        """How far the partition is."""
        partition = self.partition
        if kind == COMMITTED:
            return partition.high_watermark
        return partition.log.durable_offset if kind == DURABLE else partition.log.log_end_offset


class Waiting:
    """All waits of a node.

    `call_later(seconds, callback)` is the loop's; `on_bug()` is called while an exception of a
    waiter is handled, which keeps nobody else from being called.
    """

    def __init__(
        self,
        now: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], object],
        on_bug: Callable[[], None],
    ) -> None:
        self._now = now
        self._call_later = call_later
        self._on_bug = on_bug
        self._with_waits: dict[PartitionWaits, None] = {}
        self._refused: list[tuple[Wait, ErrorCode]] = []
        self._sweep_is_due = False
        self.noted: list[PartitionWaits] = []

    @property
    def count(self) -> int:
        """How many waits there are."""
        return sum(map(len, self._with_waits)) + len(self._refused)

    def wait(
        self,
        partition: Partition,
        leader_epoch: int,
        kind: int,
        offset: int,
        waiter: Waiter,
        place: int = 0,
        deadline: float = inf,
    ) -> Wait:
        """Call `waiter` when the partition has come to `offset`, at the end of a turn.

        Returns what `cancel` takes. The deadline is met within a tenth of a second.
        """
        wait = (offset, deadline, waiter, place)
        if leader_epoch != partition.leader_epoch or partition.leader < 0:
            self._refused.append((wait, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return wait
        waits = partition.waits
        if waits is None:
            waits = partition.waits = PartitionWaits(partition, self)
        waits.add(kind, wait)
        self._with_waits[waits] = None
        if waits.offset_of(kind) >= offset:
            waits.note()
        if deadline is not inf and not self._sweep_is_due:
            self._sweep_is_due = True
            self._call_later(_SWEEP_INTERVAL_S, self._sweep)
        return wait

    def cancel(self, partition: Partition, kind: int, wait: Wait) -> None:
        """Forget a wait; it is harmless when it has ended."""
        if partition.waits is not None:
            partition.waits.remove(kind, wait)

    def watch(self, partition: Partition, watcher: Watcher) -> None:
        """Call `watcher.moved()` at the end of every turn in which the partition has moved, until
        `unwatch`."""
        waits = partition.waits
        if waits is None:
            waits = partition.waits = PartitionWaits(partition, self)
        waits.watchers = (*waits.watchers, watcher)

    def unwatch(self, partition: Partition, watcher: Watcher) -> None:
        """Not any more; harmless when it did not watch."""
        waits = partition.waits
        if waits is not None:
            waits.watchers = tuple(each for each in waits.watchers if each is not watcher)

    def refuse(self, partition: Partition, code: ErrorCode) -> None:
        """End every wait for a partition: it is led by another, gone, or its disk has failed."""
        if partition.waits is not None:
            partition.waits.note()
            self._refused += [(wait, code) for wait in partition.waits.take_all()]

    def waiters(self) -> list[Waiter]:
        """Everybody who waits, once for each of their waits."""
        return [wait[2] for waits in self._with_waits for wait in waits]

    def serve(self) -> None:
        """End of a turn: call those whose waits are over."""
        while self.noted or self._refused:
            noted, self.noted = self.noted, []
            for waits in noted:
                waits.is_noted = False
                for _, _, waiter, place in waits.take_reached():
                    try:
                        waiter.reached(place)
                    except Exception:  # noqa: BLE001  the next one has done nothing wrong
                        self._on_bug()
                for watcher in waits.watchers:
                    try:
                        watcher.moved()
                    except Exception:  # noqa: BLE001
                        self._on_bug()
                if not len(waits):
                    self._with_waits.pop(waits, None)
            refused, self._refused = self._refused, []
            for (_, _, waiter, place), code in refused:
                try:
                    waiter.refused(place, code)
                except Exception:  # noqa: BLE001
                    self._on_bug()

    def _sweep(self) -> None:
        """End the waits whose time is up.

        Looking at all of them, ten times a second, costs less than a timer for each: usually they
        wait for a few milliseconds.
        """
        now = self._now()
        self._sweep_is_due = False
        for waits in tuple(self._with_waits):
            overdue, has_deadlines = waits.take_overdue(now)
            self._refused += [(wait, ErrorCode.REQUEST_TIMED_OUT) for wait in overdue]
            self._sweep_is_due = self._sweep_is_due or has_deadlines
            if not len(waits):
                del self._with_waits[waits]
        if self._sweep_is_due:
            self._call_later(_SWEEP_INTERVAL_S, self._sweep)
