"""A connection for requests that have no answer (Produce with acks=0)."""

from __future__ import annotations

from tidelog.protocol.headers import encode_request
from tidelog.protocol.schema import Message
from tidelog.server.network.reactor import Reactor
from tidelog.testing.simulation.host import SimulatedHost
from tidelog.testing.simulation.network import SimulatedTransport
from tidelog.world.network import BROKEN, PEER_CLOSED, READABLE, WRITABLE, Address


class OneWayConnection:
    """Sends and forgets. What a broken connection had not sent is lost with it."""

    def __init__(self, host: SimulatedHost, reactor: Reactor, address: Address) -> None:
        self._host = host
        self._reactor = reactor
        self._address = address
        self._transport: SimulatedTransport | None = None
        self._outgoing = bytearray()
        self._correlation_id = 0

    def send(self, request: Message, version: int) -> None:
        self._correlation_id += 1
        self._outgoing += encode_request(
            request.API_KEY, version, self._correlation_id, self._host.name, request
        )
        if self._transport is None:
            self._transport = self._host.connect(self._address)
            self._transport.attach(self._reactor, self._on_ready, READABLE | WRITABLE)
        else:
            self._transport.watch(READABLE | WRITABLE)

    def _on_ready(self, ready: int) -> None:
        transport = self._transport
        assert transport is not None
        if ready & (BROKEN | PEER_CLOSED):
            self._end()
            return
        try:
            while self._outgoing:
                del self._outgoing[: transport.send(bytes(self._outgoing))]
        except BlockingIOError:
            return
        except OSError:
            self._end()
            return
        transport.watch(READABLE)

    def _end(self) -> None:
        transport, self._transport = self._transport, None
        assert transport is not None
        self._outgoing.clear()
        transport.close()
