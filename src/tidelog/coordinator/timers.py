"""Deadlines of one shard.

A session deadline moves with every heartbeat, so moving one has to cost next to nothing: only the
earliest check of a key is in the heap. When that check comes due and the deadline has moved on, it
is put back; a key costs one heap operation per session timeout, not one per heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

Due = TypeVar("Due")


class Timers(Generic[Due]):
    """Named timers; scheduling a name again replaces it."""

    __slots__ = ("_heap", "_queued_ms", "_sequence", "_timers")

    def __init__(self) -> None:
        self._timers: dict[Hashable, tuple[int, Callable[[int], Due]]] = {}
        self._queued_ms: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int, Any]] = []
        self._sequence = 0

    def schedule(self, name: Hashable, deadline_ms: int, action: Callable[[int], Due]) -> None:
        """`action(now_ms)` is called by `run_due` once the deadline has passed."""
        self._timers[name] = (deadline_ms, action)
        queued = self._queued_ms.get(name)
        if queued is None or queued > deadline_ms:
            self._push(name, deadline_ms)

    def cancel(self, name: Hashable) -> None:
        self._timers.pop(name, None)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._timers

    def __len__(self) -> int:
        return len(self._timers)

    def next_deadline_ms(self) -> int | None:
        """Never later than the next deadline; earlier when that deadline was moved."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[Due]:
        """Calls what is due, in the order of the deadlines and each only when it is asked for: an
        action sees what the results before it have led to. An action may schedule and cancel."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, name = heappop(self._heap)
            if self._queued_ms.get(name) != queued_ms:
                continue
            del self._queued_ms[name]
            timer = self._timers.get(name)
            if timer is None:
                continue
            deadline_ms, action = timer
            if deadline_ms > now_ms:
                self._push(name, deadline_ms)
                continue
            del self._timers[name]
            yield action(now_ms)

    def run_due(self, now_ms: int) -> list[Due]:
        """Calls everything that is due."""
        return list(self.due(now_ms))

    def shift(self, by_ms: int) -> None:
        """Moves all deadlines: the clock that they are times of was set by so much."""
        self._timers = {
            name: (deadline_ms + by_ms, action)
            for name, (deadline_ms, action) in self._timers.items()
        }
        self._queued_ms = {name: queued_ms + by_ms for name, queued_ms in self._queued_ms.items()}
        # In place and all by the same: who iterates over what is due goes on, and the heap is one.
        self._heap[:] = [(queued_ms + by_ms, *rest) for queued_ms, *rest in self._heap]

    def clear(self) -> None:
        self._timers.clear()
        self._queued_ms.clear()
        self._heap.clear()

    def _push(self, name: Hashable, deadline_ms: int) -> None:
        self._sequence += 1
        self._queued_ms[name] = deadline_ms
        heappush(self._heap, (deadline_ms, self._sequence, name))
