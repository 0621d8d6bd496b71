"""How often keys came lately, in bounded memory.

Misra-Gries counting: at most `capacity` keys are counted at once, and a count is too low by at
most (records seen) / (capacity + 1), never too high. Two windows are kept, the one that fills and
the one before it, so that a key is judged by the last one to two windows and cools down when its
records stop.
"""

from collections.abc import Hashable


class KeyRates:
    """Counts keys over a sliding time of one to two windows."""

    def __init__(self, *, capacity: int, window_ms: int) -> None:
        if capacity < 1 or window_ms < 1:
            raise ValueError("capacity and window_ms must be at least 1")
        self.capacity = capacity
        self.window_ms = window_ms
        self._counts: dict[Hashable, int] = {}
        self._earlier: dict[Hashable, int] = {}
        self._total = 0
        self._earlier_total = 0
        self._window_ends_ms = 0

    def add(self, key: Hashable, now_ms: int) -> None:
        """Count one record of a key. Costs O(1) on average."""
        if now_ms >= self._window_ends_ms:
            self._turn_over(now_ms)
        self._total += 1
        counts = self._counts
        if key in counts:
            counts[key] += 1
        elif len(counts) < self.capacity:
            counts[key] = 1
        else:
            self._counts = {other: count - 1 for other, count in counts.items() if count > 1}

    def share(self, key: Hashable) -> float:
        """The part of all recent records that had this key, from 0 to 1."""
        total = self._total + self._earlier_total
        if total == 0:
            return 0.0
        return (self._counts.get(key, 0) + self._earlier.get(key, 0)) / total

    @property
    def records_seen(self) -> int:
        """How many records the shares are taken over."""
        return self._total + self._earlier_total

    def __len__(self) -> int:
        return len(self._counts) + len(self._earlier)

    def _turn_over(self, now_ms: int) -> None:
        one_window_late = now_ms < self._window_ends_ms + self.window_ms
        self._earlier = self._counts if one_window_late else {}
        self._earlier_total = self._total if one_window_late else 0
        self._counts = {}
        self._total = 0
        self._window_ends_ms = now_ms + self.window_ms
