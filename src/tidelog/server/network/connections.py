"""All open connections of a node: what they share and what limits them together."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from tidelog.server.network.connection import Connection
from tidelog.server.network.connection_rates import ConnectionRates
from tidelog.server.network.receive_buffer import ReceiveMemory
from tidelog.server.network.request_budget import RequestBudget

if TYPE_CHECKING:
    from tidelog.security.quotas import ClientQuotas
    from tidelog.server.configuration.node_config import NodeConfig
    from tidelog.server.metrics import Metrics
    from tidelog.server.network.listener import Listener
    from tidelog.server.network.reactor import Reactor
    from tidelog.server.structured_logs import StructuredLog
    from tidelog.world.network import Address, Transport

_SWEEP_INTERVAL_S_MAX = 5.0
_KEPT_WAITING_MAX = 1000


class Connections:
    """The open connections, their shared memory for receiving, and their limits."""

    def __init__(
        self,
        config: NodeConfig,
        reactor: Reactor,
        metrics: Metrics,
        log: StructuredLog,
        quotas: ClientQuotas,
    ) -> None:
        self.reactor = reactor
        self.metrics = metrics
        self.log = log
        budget_bytes = _or_unlimited(config.queued_max_request_bytes)
        self.memory = ReceiveMemory(budget_bytes)
        self.budget = RequestBudget(budget_bytes, metrics)
        self.dirty: list[Connection] = []
        """Connections with answers to send at the end of this turn."""
        self.dispatch: Callable[[Connection, memoryview], None] = _refuse
        self.request_bytes_max = config.socket_request_max_bytes
        self.all: dict[int, Connection] = {}

        self._per_host: dict[str, int] = {}
        self._per_listener: dict[str, int] = {}
        self.rates = ConnectionRates(
            config.quota_window_num, config.quota_window_size_seconds * 1000
        )
        self.take_over_limits(config)
        self._idle_s_max = _or_unlimited(config.connections_max_idle_ms) / 1000
        self._unread_s_max = config.socket_unread_timeout_ms / 1000
        self._quotas = quotas
        self._kept_waiting: dict[Transport, None] = {}  # above their address's quota
        self._next_id = 0
        self._sweep_later()

    def take_over_limits(self, config: NodeConfig) -> None:
        """The limits on connections have changed; those that are there stay."""
        self._connections_max = config.max_connections
        self._connections_per_host_max = config.max_connections_per_ip
        self._host_overrides = config.max_connections_per_ip_overrides
        self._listener_limits = config.listener_max_connections
        self.rates.take_over_limits(
            config.max_connection_creation_rate, config.listener_max_connection_creation_rate
        )

    def add(
        self,
        transport: Transport,
        peer: Address,
        listener: Listener,
        *,
        passes_files: bool = False,
    ) -> None:
        """Take over an accepted connection, or refuse it by a limit."""
        host = peer[0]
        if self._quotas.limits_connections and (
            throttle_ms := self._quotas.record_connection(host, self.reactor.now_ms)
        ):
            self._keep_waiting(transport, peer, throttle_ms)
            return
        of_host = self._per_host.get(host, 0)
        if len(self.all) >= self._connections_max:
            self._refuse(transport, peer, f"max.connections is {self._connections_max}")
            return
        of_listener = self._per_listener.get(listener.name, 0)
        of_listener_max = self._listener_limits.get(listener.name.lower(), of_listener + 1)
        if of_listener >= of_listener_max:
            self._refuse(
                transport, peer, f"max.connections of {listener.name} is {of_listener_max}"
            )
            return
        of_host_max = self._host_overrides.get(host, self._connections_per_host_max)
        if of_host >= of_host_max:
            self._refuse(transport, peer, f"max.connections.per.ip of {host} is {of_host_max}")
            return
        self._per_host[host] = of_host + 1
        self._per_listener[listener.name] = of_listener + 1
        self._next_id += 1
        self.all[self._next_id] = Connection(
            transport, peer, listener, self, self._next_id, passes_files=passes_files
        )
        self.metrics.connections_accepted += 1
        self.metrics.connections_open += 1

    def remove(self, connection: Connection, reason: str) -> None:
        """A connection has ended."""
        del self.all[connection.id]
        self.budget.forget(connection)
        left = self._per_host[connection.peer_host] - 1
        if left:
            self._per_host[connection.peer_host] = left
        else:
            del self._per_host[connection.peer_host]
        self._per_listener[connection.listener.name] -= 1
        self.metrics.connections_open -= 1
        self.metrics.connections_closed += 1
        self.log.debug("connection_closed", peer=connection.peer, reason=reason)

    def close_all(self, reason: str) -> None:
        """End every connection."""
        for connection in list(self.all.values()):
            connection.close(reason)
        for transport in self._kept_waiting:
            transport.close()
        self._kept_waiting.clear()

    def flush_dirty(self) -> None:
        """End of a turn: send the answers of the turn."""
        if self.dirty:
            dirty = self.dirty.copy()
            self.dirty.clear()
            for connection in dirty:
                connection.flush()

    # Connections nobody uses

    def _sweep_later(self) -> None:
        shortest_s = min(self._idle_s_max, self._unread_s_max)
        self.reactor.call_later(min(shortest_s / 4, _SWEEP_INTERVAL_S_MAX), self._sweep)

    def _sweep(self) -> None:
        now = self.reactor.now
        for connection in list(self.all.values()):
            quiet_s = now - connection.last_active
            if connection.is_sending:
                if quiet_s > self._unread_s_max:
                    self.log.warning("connection_unread", peer=connection.peer, seconds=quiet_s)
                    connection.close("the client does not read its answers")
            elif connection.has_left:
                if quiet_s > self._unread_s_max:
                    connection.abandon()
            elif quiet_s > self._idle_s_max and not connection.is_busy:
                connection.close("idle for connections.max.idle.ms")
        self._sweep_later()

    def _keep_waiting(self, transport: Transport, peer: Address, throttle_ms: int) -> None:
        """Refuse a connection, but not at once: its client would only come back the sooner."""
        reason = f"connection_creation_rate of {peer[0]} is exceeded"
        if len(self._kept_waiting) >= _KEPT_WAITING_MAX:
            self._refuse(transport, peer, reason)
            return
        self.metrics.throttled_ms += throttle_ms
        self._kept_waiting[transport] = None

        def refuse() -> None:
            if transport in self._kept_waiting:
                del self._kept_waiting[transport]
                self._refuse(transport, peer, reason)

        self.reactor.call_later(throttle_ms / 1000, refuse)

    def _refuse(self, transport: Transport, peer: Address, reason: str) -> None:
        self.metrics.connections_refused += 1
        transport.close()
        self.log.warning("connection_refused", peer=f"{peer[0]}:{peer[1]}", reason=reason)


def _or_unlimited(limit: int) -> float:
    return limit if limit >= 0 else inf


def _refuse(connection: Connection, frame: memoryview) -> None:
    connection.close("the node does not serve yet")
