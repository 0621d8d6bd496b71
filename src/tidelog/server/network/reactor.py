"""The event loop: one poller, one thread, everything in turns.

A turn waits for sockets, runs the callbacks of those that are ready, what other threads posted and
the timers that are due, and then the end-of-turn hooks. The hooks are why this loop exists: all
appends of a turn are handed to the journal together (one fdatasync for them), and all answers of a
turn leave with one system call per connection. asyncio and uvloop have no such moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.server.structured_logs import StructuredLog
    from tidelog.world import World

_LONGEST_WAIT_S = 60.0
_EVENTS_PER_TURN_MAX = 1024
_CANCELLED_TIMERS_KEPT_MAX = 1000


class Timer:
    """A callback that is due at `deadline` (monotonic seconds) unless cancelled."""

    __slots__ = ("_reactor", "callback", "deadline")

    def __init__(self, deadline: float, callback: Callable[[], None], reactor: Reactor) -> None:
        self.deadline = deadline
        self.callback: Callable[[], None] | None = callback
        self._reactor = reactor

    def __lt__(self, other: Timer) -> bool:
        return self.deadline < other.deadline

    def cancel(self) -> None:
        """Forget the callback; harmless when it has run already."""
        if self.callback is not None:
            self.callback = None
            self._reactor.timer_was_cancelled()


class Reactor:
    """Runs callbacks on the thread that called `run`. Only `post` and `stop` are thread-safe."""

    def __init__(self, world: World, log: StructuredLog) -> None:
        self.log = log
        self._monotonic = world.monotonic
        self._wall_ms = world.wall_ms
        self._poller = world.make_poller()
        self._poll = self._poller.poll
        self.modify = self._poller.modify
        """Wait for these events of a descriptor from now on."""
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._posted: deque[Callable[[], None]] = deque()
        self._wake_is_due = False
        self._timers: list[Timer] = []
        self._cancelled_count = 0
        self.is_stopped = False
        self._closed = False
        self.turn_end_hooks: list[Callable[[], None]] = []
        self.turns = 0
        self.now = self._monotonic()
        """Monotonic seconds at the start of this turn."""
        self.now_ms = self._wall_ms()
        """Wall-clock milliseconds at the start of this turn."""
        self._callbacks[self._poller.wake_fd] = self._clear_wake

    def register(self, fd: int, callback: Callable[[int], None], events: int) -> None:
        """Call `callback(ready_events)` whenever one of `events` holds for `fd`."""
        self._poller.register(fd, events)
        self._callbacks[fd] = callback

    def unregister(self, fd: int) -> None:
        """Forget `fd`; to be called before it is closed."""
        del self._callbacks[fd]
        self._poller.unregister(fd)

    def post(self, callback: Callable[[], None]) -> None:
        """Run `callback` on the loop thread soon. Callable from any thread, in order per thread."""
        self._posted.append(callback)
        # The flag saves the system call when a wake-up is under way. The loop clears it before
        # it looks at the queue, so what was appended after that look wakes it again.
        if not self._wake_is_due:
            self._wake_is_due = True
            try:
                self._poller.wake()
            except OSError:
                # The loop has ended and nobody is going to run the callback.
                if not self._closed:
                    raise

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` in this turn or the next. For the loop thread only."""
        self._posted.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_s` seconds, on the loop thread."""
        timer = Timer(self._monotonic() + delay_s, callback, self)
        heappush(self._timers, timer)
        return timer

    def timer_was_cancelled(self) -> None:
        """Count a cancelled timer and drop them from the heap once they are the most of it."""
        self._cancelled_count += 1
        if self._cancelled_count > _CANCELLED_TIMERS_KEPT_MAX and self._cancelled_count * 2 > len(
            self._timers
        ):
            self._timers = [timer for timer in self._timers if timer.callback is not None]
            heapify(self._timers)
            self._cancelled_count = 0

    def run(self) -> None:
        """Turn until `stop`. What was posted before the stop still runs."""
        while not self.is_stopped:
            self.turn(_LONGEST_WAIT_S)
        self._run_posted()
        self._run_turn_end()

    def turn(self, longest_wait_s: float) -> None:
        """Wait for something to do, at most this long, and do it."""
        wait_s = min(longest_wait_s, self.seconds_until_due())
        events = self._poll(wait_s, _EVENTS_PER_TURN_MAX)
        self.turns += 1
        self.now = self._monotonic()
        self.now_ms = self._wall_ms()
        callbacks = self._callbacks
        for fd, ready in events:
            # An earlier callback of this turn may have closed the one that is next.
            callback = callbacks.get(fd)
            if callback is not None:
                try:
                    callback(ready)
                except Exception:
                    self.log.exception("event_callback_failed", fd=fd)
        if self._posted:
            self._run_posted()
        if self._timers and self._timers[0].deadline <= self.now:
            self._run_timers()
        self._run_turn_end()

    def stop(self) -> None:
        """End `run` after the present turn. Callable from any thread."""
        self.post(self._stop)

    def close(self) -> None:
        """Release the descriptors; `run` has returned."""
        self._closed = True
        self._poller.close()

    def _stop(self) -> None:
        self.is_stopped = True

    def seconds_until_due(self) -> float:
        """How long a turn may wait for sockets: until the next timer, and not at all when
        something was posted."""
        if self._posted:
            return 0.0
        timers = self._timers
        while timers and timers[0].callback is None:
            heappop(timers)
            self._cancelled_count -= 1
        if not timers:
            return _LONGEST_WAIT_S
        return max(0.0, timers[0].deadline - self._monotonic())

    def _clear_wake(self, _ready: int) -> None:
        self._poller.clear_wake()

    def _run_posted(self) -> None:
        self._wake_is_due = False
        posted = self._posted
        # Only what is there now: a callback that posts itself again must not starve the sockets.
        for _ in range(len(posted)):
            try:
                posted.popleft()()
            except Exception:
                self.log.exception("posted_callback_failed")

    def _run_timers(self) -> None:
        timers = self._timers
        while timers and timers[0].deadline <= self.now:
            timer = heappop(timers)
            callback = timer.callback
            if callback is None:
                self._cancelled_count -= 1
                continue
            timer.callback = None
            try:
                callback()
            except Exception:
                self.log.exception("timer_failed")
            timers = self._timers

    def _run_turn_end(self) -> None:
        for hook in self.turn_end_hooks:
            try:
                hook()
            except Exception:
                self.log.exception("turn_end_hook_failed")
