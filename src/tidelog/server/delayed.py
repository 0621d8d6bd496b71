"""Requests that wait for partitions: what a produce and a fetch do when their waits end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.cluster.replication.waiting import COMMITTED, DURABLE, END
from tidelog.protocol.errors import ErrorCode
from tidelog.server.request import Deferred

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition
    from tidelog.cluster.replication.waiting import Wait, Waiting
    from tidelog.server.metrics import Metrics
    from tidelog.server.network.reactor import Reactor, Timer
    from tidelog.server.request import Request

ACKS_ALL = -1


class DelayedProduce(Deferred):
    """A produce request whose partitions are appended and not yet durable, or not yet committed.

    It is answered with `response`, or, when partitions failed meanwhile, with what `failed` makes
    of their error codes (by their places in the request). It is the promised answer itself: at
    tens of thousands of them a second one object less counts.
    """

    __slots__ = (
        "_failed",
        "_metrics",
        "_replicated",
        "_response",
        "_waits_left",
        "answers",
        "errors",
    )

    def __init__(
        self,
        request: Request,
        response: bytes,
        failed: Callable[[dict[int, ErrorCode]], bytes],
        metrics: Metrics,
    ) -> None:
        self.request = request
        self.is_exclusive = False
        self.parts = None
        self.ready = False
        self.closed = False
        self.on_close = None
        self.errors: dict[int, ErrorCode] | None = None
        self.answers: Deferred | None = None
        """What the connection waits for instead, if the request waited for something before."""
        self._response = response
        self._failed = failed
        self._metrics = metrics
        self._waits_left = 0
        self._replicated: dict[int, Partition] | None = None

    def wait(
        self,
        waiting: Waiting,
        acks: int,
        appended: list[tuple[int, Partition, int]],
        deadline: float,
    ) -> None:
        """Wait until each of (place, partition, next offset) is durable or committed."""
        kind = COMMITTED if acks == ACKS_ALL else DURABLE
        self._waits_left = len(appended)
        self._metrics.delayed_produces += 1
        for place, partition, next_offset in appended:
            if partition.state.followers and kind == COMMITTED:
                if self._replicated is None:
                    self._replicated = {}
                self._replicated[place] = partition
            waiting.wait(
                partition, partition.leader_epoch, kind, next_offset, self, place, deadline
            )

    def reached(self, place: int, /) -> None:
        if self._replicated is not None:
            partition = self._replicated.get(place)
            if partition is not None and not partition.has_enough_replicas:
                self.refused(place, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
                return
        self._waits_left -= 1
        if not self._waits_left:
            self._finish()

    def refused(self, place: int, code: ErrorCode, /) -> None:
        if self.errors is None:
            self.errors = {}
        self.errors[place] = code
        self._waits_left -= 1
        if not self._waits_left:
            self._finish()

    def _finish(self) -> None:
        self._metrics.delayed_produces -= 1
        errors = self.errors
        answers = self.answers or self
        if not answers.closed:
            answers.answer(self._response if errors is None else self._failed(errors))


class DelayedFetch:
    """A fetch that waits for more bytes. `done` reads again and answers.

    `bytes_now(place)` says how much the partition at that place of the request has to read.
    """

    __slots__ = (
        "_bytes_missing",
        "_bytes_now",
        "_done",
        "_kind",
        "_known_bytes",
        "_metrics",
        "_timer",
        "_waiting",
        "_waits",
    )

    def __init__(
        self,
        bytes_missing: int,
        known_bytes: dict[int, int],
        bytes_now: Callable[[int], int],
        done: Callable[[], None],
        metrics: Metrics,
    ) -> None:
        self._bytes_missing = bytes_missing
        self._bytes_now = bytes_now
        self._done = done
        self._kind = COMMITTED
        self._known_bytes = known_bytes
        self._metrics = metrics
        self._timer: Timer | None = None
        self._waiting: Waiting | None = None
        self._waits: dict[int, tuple[Partition, Wait]] = {}

    def wait(
        self,
        waiting: Waiting,
        reactor: Reactor,
        partitions: list[tuple[int, Partition]],
        *,
        is_follower: bool,
        wait_s: float,
    ) -> None:
        """Wait until the partitions have enough bytes, or for this long."""
        self._metrics.delayed_fetches += 1
        self._waiting = waiting
        self._kind = END if is_follower else COMMITTED
        for place, partition in partitions:
            self._wait_for_more(place, partition)
        self._timer = reactor.call_later(wait_s, self.finish)

    def _wait_for_more(self, place: int, partition: Partition) -> None:
        assert self._waiting is not None
        seen_offset = (
            partition.high_watermark if self._kind == COMMITTED else (partition.log_end_offset)
        )
        wait = self._waiting.wait(
            partition, partition.leader_epoch, self._kind, seen_offset + 1, self, place
        )
        self._waits[place] = (partition, wait)

    def reached(self, place: int, /) -> None:
        if self._timer is None:
            return
        partition, _ = self._waits.pop(place)
        bytes_now = self._bytes_now(place)
        self._bytes_missing -= bytes_now - self._known_bytes.get(place, 0)
        self._known_bytes[place] = bytes_now
        if self._bytes_missing <= 0:
            self.finish()
        else:
            self._wait_for_more(place, partition)

    def refused(self, place: int, code: ErrorCode, /) -> None:
        """The answer says what is wrong, so it is due."""
        self._waits.pop(place, None)
        self.finish()

    def finish(self) -> None:
        """Answer with what there is."""
        if self.cancel():
            self._done()

    def cancel(self) -> bool:
        """Forget it, for its client has gone; says whether it still waited."""
        if self._timer is None:
            return False
        self._timer.cancel()
        self._timer = None
        self._metrics.delayed_fetches -= 1
        assert self._waiting is not None
        for partition, wait in self._waits.values():
            self._waiting.cancel(partition, self._kind, wait)
        self._waits.clear()
        return True
