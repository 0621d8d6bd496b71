"""A token bucket: an allowance that grows steadily up to a burst and may be overdrawn.

For work that comes in lumps: a request for a thousand partitions is one event, which a sliding
rate would take for a rate of its own. Whoever has anything left may take all that he needs, so no
lump is too large for any quota; who is overdrawn waits until the bucket is level again.
"""

from __future__ import annotations

from math import ceil


class TokenBucket:
    """The tokens of one client. No clock of its own; a clock that jumps back takes nothing away."""

    __slots__ = ("_at_ms", "_burst", "_per_second", "_tokens")

    def __init__(self, per_second: float, burst: float, now_ms: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._tokens = burst
        self._at_ms = now_ms

    def set_rate(self, per_second: float, burst: float, now_ms: int) -> None:
        """From now on tokens come at this rate; what was taken stays taken."""
        self._refill(now_ms)
        self._per_second = per_second
        self._burst = burst

    def take(self, amount: float, now_ms: int) -> None:
        self._refill(now_ms)
        self._tokens -= amount

    def wait_ms(self, now_ms: int) -> int:
        """How long until nothing is overdrawn any more; 0 when nothing is."""
        self._refill(now_ms)
        return ceil(-self._tokens / self._per_second * 1000) if self._tokens < 0 else 0

    def is_full(self, now_ms: int) -> bool:
        self._refill(now_ms)
        return self._tokens >= self._burst

    def _refill(self, now_ms: int) -> None:
        earned = max(0, now_ms - self._at_ms) / 1000 * self._per_second
        self._tokens = min(self._burst, self._tokens + earned)
        self._at_ms = now_ms
