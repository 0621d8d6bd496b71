"""An amount a second over the last few windows of time, which quotas and throttles are held to."""

from __future__ import annotations

from collections import deque
from math import ceil, inf


class WindowedRate:
    """Constant work for each event. No clock of its own.

    The time that a rate is taken over is at least all windows but the current one, so that the
    first burst of a client is not taken for its rate. Where `counts_first_burst`, it is one window
    at least: what comes all at once has to be waited for, however long nothing came before.
    """

    __slots__ = ("_counts_first_burst", "_total", "_window_count", "_window_ms", "_windows")

    def __init__(
        self, window_count: int, window_ms: int, *, counts_first_burst: bool = False
    ) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._counts_first_burst = counts_first_burst
        self._windows: deque[list[float]] = deque()
        self._total = 0.0

    def record(self, amount: float, now_ms: int) -> None:
        windows = self._windows
        self._drop_old(now_ms)
        if not windows or now_ms - windows[-1][0] >= self._window_ms:
            windows.append([now_ms, 0.0])
        windows[-1][1] += amount
        self._total += amount

    def per_second(self, now_ms: int) -> float:
        self._drop_old(now_ms)
        return max(0.0, self._total) * 1000 / self.span_ms(now_ms)

    def span_ms(self, now_ms: int) -> int:
        """The time the rate is taken over."""
        self._drop_old(now_ms)
        elapsed_ms = now_ms - int(self._windows[0][0]) if self._windows else 0
        if self._counts_first_burst:
            return max(elapsed_ms, self._window_ms)
        full_windows_missing = self._window_count - 1 - elapsed_ms // self._window_ms
        return elapsed_ms + max(0, full_windows_missing) * self._window_ms

    def wait_ms(self, bound_per_second: float, now_ms: int) -> int:
        """Of a rate that counts the first burst: how long until it is within the bound, or another
        one, when nothing more comes. 0 when it is within the bound now.

        That is when enough time has passed since the oldest window began, or when that window is
        not counted any more.
        """
        assert self._counts_first_burst, "the span of other rates has parts that do not elapse"
        if self.per_second(now_ms) <= bound_per_second:
            return 0
        begun_ms = int(self._windows[0][0])
        needed_ms = self._total * 1000 / bound_per_second if bound_per_second else inf
        forgotten_ms = self._window_count * self._window_ms
        return max(1, ceil(min(needed_ms, forgotten_ms)) - (now_ms - begun_ms))

    def is_idle(self, now_ms: int) -> bool:
        self._drop_old(now_ms)
        return not self._windows

    def _drop_old(self, now_ms: int) -> None:
        windows = self._windows
        oldest_ms = now_ms - self._window_count * self._window_ms
        while windows and windows[0][0] <= oldest_ms:
            self._total -= windows.popleft()[1]
        if not windows:
            self._total = 0.0


def throttle_time_ms(rate: WindowedRate, bound_per_second: float, now_ms: int) -> int:
    """How much longer the span of `rate` must be for its amount to be within the bound."""
    per_second = rate.per_second(now_ms)
    if per_second <= bound_per_second:
        return 0
    return round((per_second - bound_per_second) / bound_per_second * rate.span_ms(now_ms))
