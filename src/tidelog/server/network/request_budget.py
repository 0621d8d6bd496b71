"""How much of all requests together may be received and not answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.server.metrics import Metrics


class _Resumable(Protocol):
    def resume(self) -> None: ...


class RequestBudget:
    """The bytes of requests that wait for their answers, with a limit for all connections.

    Also over the limit is a node whose journal has too much to write. Connections that may not go
    on ask to be resumed.
    """

    __slots__ = ("_bytes_max", "_is_congested", "_metrics", "_waiting", "is_over")

    def __init__(self, bytes_max: float, metrics: Metrics) -> None:
        self._bytes_max = bytes_max
        self._metrics = metrics
        self._is_congested = False
        self._waiting: dict[_Resumable, None] = {}
        self.is_over = False
        """Whether requests have to wait until others are answered."""

    def acquire(self, size_bytes: int) -> None:
        """A request waits for its answer."""
        metrics = self._metrics
        metrics.requests_in_flight += 1
        metrics.in_flight_bytes += size_bytes
        if metrics.in_flight_bytes > self._bytes_max:
            self.is_over = True

    def release(self, count: int, size_bytes: int) -> None:
        """Requests were answered or given up."""
        metrics = self._metrics
        metrics.requests_in_flight -= count
        metrics.in_flight_bytes -= size_bytes
        if self.is_over:
            self._update()

    def set_congested(self, is_congested: bool) -> None:
        """While the journal has too much to write, no more requests are processed."""
        if is_congested != self._is_congested:
            self._is_congested = is_congested
            self._update()

    def wait(self, connection: _Resumable) -> None:
        """Resume this connection when the budget is not exceeded any more."""
        self._waiting[connection] = None

    def forget(self, connection: _Resumable) -> None:
        """The connection has ended."""
        self._waiting.pop(connection, None)

    def _update(self) -> None:
        self.is_over = self._is_congested or self._metrics.in_flight_bytes > self._bytes_max
        if not self.is_over and self._waiting:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                connection.resume()
