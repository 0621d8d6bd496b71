"""Requests under way: one at a time for each destination, with time limits and pauses.

A destination is ready, awaits a response, or pauses after a failure. When the replica changes its
role, everything is forgotten: a response that comes later is one that nobody expects.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from tidelog.protocol.schema import Message
from tidelog.raft.settings import QuorumSettings
from tidelog.raft.voters import Destination


class InFlight:
    """A request that is not answered yet."""

    __slots__ = ("correlation", "destination", "request", "sent_ms")

    def __init__(
        self, correlation: int, destination: Destination, request: Message, sent_ms: int
    ) -> None:
        self.correlation = correlation
        self.destination = destination
        self.request = request
        self.sent_ms = sent_ms


class Connections:
    """By the id of the destination's node."""

    __slots__ = (
        "_awaiting",
        "_next_correlation",
        "_paused_until_ms",
        "_random",
        "_settings",
        "bootstrap_paused_until_ms",
    )

    def __init__(self, settings: QuorumSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._next_correlation = 0
        self._awaiting: dict[int, InFlight] = {}
        self._paused_until_ms: dict[int, int] = {}
        self.bootstrap_paused_until_ms = 0

    def sent(self, destination: Destination, request: Message, now_ms: int) -> int:
        """A request goes out; returns its correlation id."""
        self._next_correlation += 1
        self._awaiting[destination.node_id] = InFlight(
            self._next_correlation, destination, request, now_ms
        )
        self._paused_until_ms.pop(destination.node_id, None)
        return self._next_correlation

    def take(self, correlation: int, node_id: int) -> InFlight | None:
        """A response has come; None when nobody expects it."""
        in_flight = self._awaiting.get(node_id)
        if in_flight is None or in_flight.correlation != correlation:
            return None
        del self._awaiting[node_id]
        return in_flight

    def pause(self, node_id: int, now_ms: int) -> None:
        """It did not go well: leave the destination alone for a moment."""
        until_ms = now_ms + self._settings.retry_backoff_ms
        if node_id < 0:
            # The others will know no more at this moment.
            self.bootstrap_paused_until_ms = until_ms
        else:
            self._paused_until_ms[node_id] = until_ms

    def reset(self, node_id: int) -> None:
        self._awaiting.pop(node_id, None)
        self._paused_until_ms.pop(node_id, None)

    def reset_all(self) -> None:
        self._awaiting.clear()
        self._paused_until_ms.clear()

    # Questions

    def has_timed_out(self, node_id: int, now_ms: int) -> bool:
        in_flight = self._awaiting.get(node_id)
        return (
            in_flight is not None
            and now_ms >= in_flight.sent_ms + self._settings.request_timeout_ms
        )

    def is_paused(self, node_id: int, now_ms: int) -> bool:
        return now_ms < self._paused_until_ms.get(node_id, now_ms)

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return (
            node_id not in self._awaiting or self.has_timed_out(node_id, now_ms)
        ) and not self.is_paused(node_id, now_ms)

    def ready_at(self, node_id: int) -> int:
        """When the destination can have a request, if nothing is heard of it."""
        in_flight = self._awaiting.get(node_id)
        if in_flight is not None:
            return in_flight.sent_ms + self._settings.request_timeout_ms
        return self._paused_until_ms.get(node_id, 0)

    def any_in_flight(self, now_ms: int) -> bool:
        """Whether any request still counts; those that were waited for long enough are forgotten,
        so that a late answer does not count beside that of a later request."""
        limit_ms = now_ms - self._settings.request_timeout_ms
        for in_flight in list(self._awaiting.values()):
            if in_flight.sent_ms <= limit_ms:
                del self._awaiting[in_flight.destination.node_id]
        return bool(self._awaiting)

    def all_ready_at(self) -> int:
        """When none of the requests under way counts any more."""
        return (
            max((each.sent_ms for each in self._awaiting.values()), default=0)
            + self._settings.request_timeout_ms
        )

    def ready_bootstrap(
        self, addresses: Iterable[tuple[str, int]], now_ms: int
    ) -> Destination | None:
        """One of these servers, to ask it who leads: a different one each time."""
        if now_ms < self.bootstrap_paused_until_ms or self.any_in_flight(now_ms):
            return None
        # Nothing is in flight, so that a number may stand for another server than before.
        servers = list(dict.fromkeys(addresses))
        if not servers:
            return None
        index = self._random.randrange(len(servers))
        return Destination(-2 - index, *servers[index])
