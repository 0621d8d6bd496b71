"""A limit on bytes in the background, by a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from tidelog.byte_throttle import ByteThrottle


class Clock:
    """Milliseconds, and what is to be called when."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        heappush(self._calls, (self.now_ms + round(seconds * 1000), next(self._order), call))

    def run(self, milliseconds: int) -> None:
        """So much time passes."""
        end_ms = self.now_ms + milliseconds
        while self._calls and self._calls[0][0] <= end_ms:
            due_ms, _, call = heappop(self._calls)
            self.now_ms = max(self.now_ms, due_ms)
            call()
        self.now_ms = end_ms

    def throttle(self, limit: int) -> ByteThrottle:
        throttle = ByteThrottle(11, 1000, lambda: self.now_ms, self.call_later)
        throttle.set_limit(limit)
        return throttle


class Mover:
    """Moves pieces as long as there is room, and comes back when it is called."""

    def __init__(self, clock: Clock, throttle: ByteThrottle, piece_bytes: int) -> None:
        self.clock = clock
        self.throttle = throttle
        self.piece_bytes = piece_bytes
        self.moved_bytes = 0
        self.calls = 0

    def go_on(self) -> None:
        self.calls += 1
        if self.throttle.is_exceeded:
            self.throttle.when_open(self.go_on)
            return
        self.throttle.record(self.piece_bytes)
        self.moved_bytes += self.piece_bytes
        self.clock.call_later(0.001, self.go_on)


def test_without_a_limit_nothing_is_exceeded() -> None:
    clock = Clock()
    throttle = ByteThrottle(11, 1000, lambda: clock.now_ms, clock.call_later)
    throttle.record(10**15)
    assert not throttle.is_exceeded


def test_bytes_are_moved_as_fast_as_the_limit_says() -> None:
    clock = Clock()
    mover = Mover(clock, clock.throttle(1_000_000), 100_000)
    mover.go_on()
    clock.run(60_000)
    assert 59_000_000 <= mover.moved_bytes <= 62_000_000


def test_nobody_is_called_more_often_than_there_is_room() -> None:
    clock = Clock()
    mover = Mover(clock, clock.throttle(1_000_000), 100_000)
    mover.go_on()
    clock.run(60_000)
    assert mover.calls <= 4 * mover.moved_bytes / mover.piece_bytes


def test_several_share_the_limit() -> None:
    clock = Clock()
    throttle = clock.throttle(1_000_000)
    movers = [Mover(clock, throttle, 50_000) for _ in range(3)]
    for mover in movers:
        mover.go_on()
    clock.run(60_000)
    assert 59_000_000 <= sum(mover.moved_bytes for mover in movers) <= 62_000_000
    for mover in movers:
        assert mover.moved_bytes > 10_000_000


def test_a_burst_is_waited_for_before_anything_else_is_moved() -> None:
    clock = Clock()
    throttle = clock.throttle(1_000_000)
    called_ms: list[int] = []
    throttle.record(5_000_000)
    assert throttle.is_exceeded
    throttle.when_open(lambda: called_ms.append(clock.now_ms))
    clock.run(20_000)
    assert called_ms == [5_000]
    assert not throttle.is_exceeded


def test_what_was_moved_long_ago_does_not_count() -> None:
    clock = Clock()
    throttle = clock.throttle(1_000)
    throttle.record(10**9)
    clock.run(10_999)
    assert throttle.is_exceeded
    clock.run(1)
    assert not throttle.is_exceeded


def test_a_higher_limit_calls_at_once_and_a_lower_one_holds_at_once() -> None:
    clock = Clock()
    throttle = clock.throttle(1_000)
    mover = Mover(clock, throttle, 1_000_000)
    mover.go_on()
    clock.run(2_000)
    assert (mover.moved_bytes, mover.calls) == (1_000_000, 2)
    throttle.set_limit(10_000_000)
    clock.run(10)
    assert mover.moved_bytes > 5_000_000
    throttle.set_limit(1_000)
    moved = mover.moved_bytes
    clock.run(5_000)
    assert mover.moved_bytes == moved


def test_a_limit_that_is_still_too_low_is_waited_for_by_its_own_time() -> None:
    """Not by the time that the one before it needed."""
    clock = Clock()
    throttle = clock.throttle(100_000)
    throttle.record(1_000_000)
    mover = Mover(clock, throttle, 1_000_000)
    mover.go_on()
    throttle.set_limit(500_000)
    clock.run(1_999)
    assert mover.moved_bytes == 0
    clock.run(1)
    assert mover.moved_bytes == 1_000_000


def test_a_limit_of_nothing_lets_a_burst_through_for_each_time_that_counts() -> None:
    clock = Clock()
    mover = Mover(clock, clock.throttle(0), 7)
    mover.go_on()
    clock.run(10_000)
    assert mover.moved_bytes == 7
    clock.run(22_000)
    assert mover.moved_bytes == 21
