"""How fast new connections may come, over all listeners and over each of them.

Above the rate nobody is refused: the listener takes no more connections from its queue until the
rate is low enough again, as Kafka does it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.cluster.settings.config_schema import INT_MAX
from tidelog.windowed_rate import WindowedRate, throttle_time_ms

_ALL_LISTENERS = ""


class ConnectionRates:
    """The rates of new connections, with `max.connection.creation.rate` as their bound."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._rates: dict[str, WindowedRate] = {}
        self._limits: dict[str, int] = {}

    def take_over_limits(self, of_all: int, of_listeners: Mapping[str, int]) -> None:
        """Use these bounds from now on; what has come stays counted."""
        limits = {**of_listeners, _ALL_LISTENERS: of_all}
        self._limits = {name: limit for name, limit in limits.items() if limit < INT_MAX}

    def record(self, listener_name: str, now_ms: int) -> int:
        """Count a connection; returns for how many milliseconds its listener is to pause."""
        if not self._limits:
            return 0
        pause_ms = 0
        for name in (_ALL_LISTENERS, listener_name.lower()):
            limit = self._limits.get(name)
            if limit is None:
                continue
            rate = self._rates.get(name)
            if rate is None:
                rate = self._rates[name] = WindowedRate(self._window_count, self._window_ms)
            rate.record(1, now_ms)
            pause_ms = max(pause_ms, throttle_time_ms(rate, limit, now_ms))
        return pause_ms
