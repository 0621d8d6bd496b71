"""A limit on the bytes a second that work in the background may move.

What is moved is counted when it has been; whoever finds the limit exceeded moves nothing and is
called when there may be room again. So nobody sleeps, and what is in flight may exceed the limit
for a moment: the time until the next bytes makes up for it.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.windowed_rate import WindowedRate

UNLIMITED = 2**63 - 1


class ByteThrottle:
    """One limit of a node. All of it belongs to the loop thread."""

    __slots__ = ("_call_later", "_due_ms", "_limit", "_rate", "_waiting", "now_ms")

    def __init__(
        self,
        window_count: int,
        window_ms: int,
        now_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self.now_ms = now_ms
        """Monotonic time in milliseconds."""
        self._call_later = call_later
        self._rate = WindowedRate(window_count, window_ms, counts_first_burst=True)
        self._limit = UNLIMITED
        self._waiting: dict[Callable[[], None], None] = {}
        self._due_ms: int | None = None

    @property
    def is_exceeded(self) -> bool:
        """Whether more was moved lately than the limit allows."""
        return self._limit != UNLIMITED and self._rate.per_second(self.now_ms()) > self._limit

    def record(self, size_bytes: int) -> None:
        """So much was moved."""
        self._rate.record(size_bytes, self.now_ms())

    def set_limit(self, bytes_per_second: int) -> None:
        """Takes hold at once; what was moved lately still counts."""
        if bytes_per_second != self._limit:
            self._limit = bytes_per_second
            self.call_all()

    def when_open(self, call: Callable[[], None]) -> None:
        """Call once when there may be room, or the limit is another one. Who is called looks again,
        and asks again when there is none: another may have taken it. Calls that are equal are
        one."""
        self._waiting[call] = None
        self._look_later()

    def call_all(self) -> None:
        """Everybody who waits is to look again."""
        waiting, self._waiting = self._waiting, {}
        self._due_ms = None
        for call in waiting:
            self._call_later(0.0, call)

    def _look_later(self) -> None:
        now_ms = self.now_ms()
        wait_ms = self._rate.wait_ms(self._limit, now_ms)
        due_ms = now_ms + wait_ms
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
            self._call_later(wait_ms / 1000, lambda: self._look(due_ms))

    def _look(self, due_ms: int) -> None:
        if due_ms != self._due_ms:
            return  # an earlier look was needed, or nobody waits any more
        self._due_ms = None
        if self.is_exceeded:
            self._look_later()
        else:
            self.call_all()
