"""Purgatory: requests that wait for a partition to get somewhere.

A produce request waits until its records are durable (acks=1) or committed (acks=all), a fetch
until there are enough bytes to read. Both watch the partitions they are about. A partition that
moves only notes that it did; what waits for it is looked at once, at the end of the loop's turn,
so a turn with a thousand appends wakes a consumer once. Only the partitions that moved are looked
at, and of those only the requests that wait for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.protocol.errors import ErrorCode
from tidelog.server.request import Deferred

if TYPE_CHECKING:
    from tidelog.cluster.partition import Partition
    from tidelog.server.metrics import Metrics
    from tidelog.server.reactor import Reactor, Timer
    from tidelog.server.request import Request

_SWEEP_INTERVAL_S = 0.1


class DelayedProduce(Deferred):
    """A produce request whose partitions are appended and not yet durable, or not yet committed.

    It is answered with `response`, or, when partitions failed meanwhile, with what `failed` makes
    of their error codes (by their places in the request). It is the promised answer itself: at
    tens of thousands of them a second one object less counts.
    """

    __slots__ = ("acks", "answers", "deadline", "errors", "failed", "response", "waiting")

    def __init__(
        self,
        request: Request,
        acks: int,
        deadline: float,
        response: bytes,
        failed: Callable[[dict[int, ErrorCode]], bytes],
    ) -> None:
        self.request = request
        self.is_exclusive = False
        self.parts = None
        self.ready = False
        self.closed = False
        self.on_close = None
        self.acks = acks
        self.deadline = deadline
        self.response = response
        self.failed = failed
        self.errors: dict[int, ErrorCode] | None = None
        self.waiting = 1
        self.answers: Deferred | None = None
        """What the connection waits for instead, if the request waited for something before."""


class DelayedFetch:
    """A fetch that waits for more bytes. `done` reads again and answers.

    `bytes_now(place)` says how much the partition at that place of the request has to read.
    """

    __slots__ = ("bytes_missing", "bytes_now", "done", "known_bytes", "timer", "watched")

    def __init__(
        self,
        bytes_missing: int,
        bytes_now: Callable[[int], int],
        done: Callable[[], None],
    ) -> None:
        self.bytes_missing = bytes_missing
        self.bytes_now = bytes_now
        self.done = done
        self.known_bytes: dict[int, int] = {}
        self.watched: list[PartitionWatch] = []
        self.timer: Timer | None = None


class PartitionWatch:
    """The requests that wait for one partition."""

    __slots__ = ("_purgatory", "fetches", "has_moved", "partition", "produces")

    def __init__(self, partition: Partition, purgatory: Purgatory) -> None:
        self.partition = partition
        self.produces: deque[tuple[int, int, DelayedProduce]] = deque()
        """(next offset, place in the request, request), by offset."""
        self.fetches: dict[DelayedFetch, int] = {}
        """The place in its request, of each fetch."""
        self.has_moved = False
        self._purgatory = purgatory

    def note_progress(self, _partition: Partition) -> None:
        """The partition's high watermark, durable end, start or leader changed."""
        if not self.has_moved:
            self.has_moved = True
            self._purgatory.moved.append(self)


class Purgatory:
    """All requests of the node that wait for partitions."""

    def __init__(self, reactor: Reactor, metrics: Metrics) -> None:
        self._reactor = reactor
        self._metrics = metrics
        self._watches: dict[Partition, PartitionWatch] = {}
        self._sweep_is_due = False
        self.moved: list[PartitionWatch] = []
        """Watches of the partitions that moved in this turn."""

    def watch_produce(
        self, produce: DelayedProduce, appended: list[tuple[int, Partition, int]]
    ) -> None:
        """Wait until each of (place, partition, next offset) is durable or committed."""
        produce.waiting = len(appended)
        self._metrics.delayed_produces += 1
        for place, partition, next_offset in appended:
            watch = self._watches.get(partition) or self._watch(partition)
            watch.produces.append((next_offset, place, produce))
        if not self._sweep_is_due:
            self._sweep_is_due = True
            self._reactor.call_later(_SWEEP_INTERVAL_S, self._sweep)

    def watch_fetch(
        self, fetch: DelayedFetch, partitions: list[tuple[int, Partition]], wait_s: float
    ) -> None:
        """Wait until the partitions have enough bytes, or for this long."""
        self._metrics.delayed_fetches += 1
        for place, partition in partitions:
            watch = self._watch(partition)
            watch.fetches[fetch] = place
            fetch.watched.append(watch)
        fetch.timer = self._reactor.call_later(wait_s, lambda: self._finish_fetch(fetch))

    def cancel_fetch(self, fetch: DelayedFetch) -> None:
        """Forget a fetch whose client has gone."""
        if fetch.timer is None:
            return
        fetch.timer.cancel()
        fetch.timer = None
        self._metrics.delayed_fetches -= 1
        for watch in fetch.watched:
            watch.fetches.pop(fetch, None)
            self._unwatch_if_unused(watch)
        fetch.watched.clear()

    def fail(self, partition: Partition, code: ErrorCode) -> None:
        """Whatever waits for this partition gets this error: it is gone or its disk is."""
        watch = self._watches.get(partition)
        if watch is None:
            return
        while watch.produces:
            _, place, produce = watch.produces.popleft()
            self._settle(produce, place, code)
        for fetch in list(watch.fetches):
            self._finish_fetch(fetch)
        self._unwatch_if_unused(watch)

    def finish_fetches(self) -> None:
        """Answer every fetch that waits with what there is: the node stops."""
        for watch in list(self._watches.values()):
            for fetch in list(watch.fetches):
                self._finish_fetch(fetch)

    def look(self) -> None:
        """End of a turn: serve what waited for the partitions that moved."""
        # Answers may make other partitions move (never this turn's data); they wait for the next.
        moved, self.moved = self.moved, []
        for watch in moved:
            watch.has_moved = False
            if watch.produces:
                self._look_at_produces(watch)
            if watch.fetches:
                self._look_at_fetches(watch)
            self._unwatch_if_unused(watch)

    def _watch(self, partition: Partition) -> PartitionWatch:
        watch = self._watches.get(partition)
        if watch is None:
            watch = self._watches[partition] = PartitionWatch(partition, self)
            partition.on_progress.append(watch.note_progress)
        return watch

    def _unwatch_if_unused(self, watch: PartitionWatch) -> None:
        # A watch that has moved stays until it was looked at.
        if watch.produces or watch.fetches or watch.has_moved:
            return
        if self._watches.pop(watch.partition, None) is not None:
            watch.partition.on_progress.remove(watch.note_progress)

    # Produce

    def _look_at_produces(self, watch: PartitionWatch) -> None:
        partition = watch.partition
        waiting = watch.produces
        if not partition.is_leader:
            while waiting:
                _, place, produce = waiting.popleft()
                self._settle(produce, place, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        high_watermark = partition.high_watermark
        durable_offset = partition.log.durable_offset
        # By offset: the first that is not there yet ends it, for acks=all requests. One with
        # acks=1 behind it may be, but with one in-sync replica the two offsets are the same.
        while waiting:
            next_offset, place, produce = waiting[0]
            if next_offset > (high_watermark if produce.acks == -1 else durable_offset):
                break
            waiting.popleft()
            if produce.waiting == 1 and produce.errors is None:
                produce.waiting = 0
                self._metrics.delayed_produces -= 1
                answers = produce.answers or produce
                if not answers.closed:
                    produce.request.connection.answer_deferred(answers, produce.response)
            else:
                self._settle(produce, place, ErrorCode.NONE)

    def _settle(self, produce: DelayedProduce, place: int, code: ErrorCode) -> None:
        """One partition of a produce request has come to its end."""
        if code:
            produce.errors = produce.errors or {}
            produce.errors[place] = code
        produce.waiting -= 1
        if not produce.waiting:
            self._metrics.delayed_produces -= 1
            errors = produce.errors
            answers = produce.answers or produce
            answers.answer(produce.response if errors is None else produce.failed(errors))

    def _sweep(self) -> None:
        """Answer the requests whose time is up.

        Looking at all that wait, ten times a second, costs less than a timer for each: usually
        they wait for a few milliseconds.
        """
        now = self._reactor.now
        is_waiting = False
        for watch in list(self._watches.values()):
            expired = [entry for entry in watch.produces if entry[2].deadline <= now]
            if expired:
                watch.produces = deque(entry for entry in watch.produces if entry[2].deadline > now)
                for _, place, produce in expired:
                    self._settle(produce, place, ErrorCode.REQUEST_TIMED_OUT)
                self._unwatch_if_unused(watch)
            is_waiting = is_waiting or bool(watch.produces)
        self._sweep_is_due = is_waiting
        if is_waiting:
            self._reactor.call_later(_SWEEP_INTERVAL_S, self._sweep)

    # Fetch

    def _look_at_fetches(self, watch: PartitionWatch) -> None:
        for fetch, place in list(watch.fetches.items()):
            if not watch.partition.is_leader:
                self._finish_fetch(fetch)
                continue
            bytes_now = fetch.bytes_now(place)
            fetch.bytes_missing -= bytes_now - fetch.known_bytes.get(place, 0)
            fetch.known_bytes[place] = bytes_now
            if fetch.bytes_missing <= 0:
                self._finish_fetch(fetch)

    def _finish_fetch(self, fetch: DelayedFetch) -> None:
        if fetch.timer is not None:
            self.cancel_fetch(fetch)
            fetch.done()
