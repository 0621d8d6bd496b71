"""A simulated client: the real protocol over simulated connections, on a machine of its own."""

from __future__ import annotations

import io
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from tidelog.protocol.schema import Message
from tidelog.server.network.peer_connection import (
    PeerConnection,
    PeerError,
    PeerOptions,
    PeerTimeout,
)
from tidelog.server.network.reactor import Reactor
from tidelog.server.structured_logs import StructuredLog
from tidelog.testing.simulation.host import SimulatedHost
from tidelog.testing.simulation.network import Network
from tidelog.testing.simulation.one_way import OneWayConnection
from tidelog.testing.simulation.simulation import SECOND_US, Simulation
from tidelog.testing.simulation.tasks import Settled, Task
from tidelog.world.network import Address

Response = TypeVar("Response", bound=Message)


class WatchedConnection(PeerConnection):
    """Tells of answers that are none: the simulated network does not change what it carries."""

    on_malformed: Callable[[str], None]

    def _broken(self, reason: str) -> None:
        if reason.startswith("malformed answer"):
            self.on_malformed(reason)
        super()._broken(reason)


class Router(Protocol):
    """Finds the node that a request has to go to."""

    async def find(self, request: Message) -> Address:
        """Where to send it; may take calls of its own."""
        ...

    def guess(self, request: Message) -> Address:
        """The same, as far as is known by now."""
        ...

    def is_forwarded(self, request: Message) -> bool:
        """Whether the node that is asked asks another one, perhaps more than once."""
        ...

    def heard(self, request: Message, response: Message | None) -> None:
        """What became of it; None when there was no answer."""
        ...


class OneNode:
    """All requests go to the same node."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def find(self, request: Message) -> Address:
        return self._address

    def guess(self, request: Message) -> Address:
        return self._address

    def is_forwarded(self, request: Message) -> bool:
        return False

    def heard(self, request: Message, response: Message | None) -> None:
        pass


class SimulatedClient:
    """One client program: a machine, connections to nodes, and tasks that use them."""

    def __init__(
        self,
        simulation: Simulation,
        network: Network,
        name: str,
        address: Address,
        *,
        timeout_s: float = 5.0,
        in_flight_max: int = 5,
    ) -> None:
        self.name = name
        self.simulation = simulation
        self.random = simulation.random(f"{name}/choices")
        self.timeout_s = timeout_s
        self.host = SimulatedHost(simulation, network, name)
        self.host.boot()
        self.errors = io.StringIO()
        self.reactor = Reactor(
            self.host, StructuredLog(now_ms=self.host.wall_ms, stream=self.errors)
        )
        self.address = address
        """Of the node that is asked first."""
        self.router: Router = OneNode(address)
        self._options = PeerOptions(client_id=name, in_flight_max=in_flight_max)
        self._connections: dict[Address, WatchedConnection] = {}
        self._one_way: dict[Address, OneWayConnection] = {}
        self.problems: list[str] = []
        self.on_timeout: Callable[[str, int], None] = lambda request, begun_us: None
        """Hears of each call that was not answered in time, and when it began."""
        self.unreachable: frozenset[Address] = frozenset()
        """From whom nobody expects an answer."""
        self.tasks: list[Task] = []
        self.calls = 0
        self.host.run(self.reactor)

    def start(self, coroutine: Coroutine[Any, Any, object]) -> Task:
        """Begin a task."""
        task = Task(self.name, coroutine)
        self.tasks.append(task)
        self.simulation.after(0, task.step)
        return task

    async def call(
        self, request: Message, answer: type[Response], *, version_max: int | None = None
    ) -> Response:
        """The answer to a request, in the newest version that both sides know, or up to
        `version_max`, from the node that the request has to go to. Raises PeerError."""
        address = await self.router.find(request)
        try:
            response = await self.call_node(address, request, answer, version_max=version_max)
        except PeerError:
            self.router.heard(request, None)
            raise
        self.router.heard(request, response)
        return response

    async def call_node(
        self,
        address: Address,
        request: Message,
        answer: type[Response],
        *,
        version_max: int | None = None,
    ) -> Response:
        """The same from the node with this address."""
        settled: Settled[Message] = Settled()
        begun_us = self.simulation.now_us

        def done(response: Message | None, error: PeerError | None) -> None:
            if response is not None:
                settled.set(response)
            else:
                assert error is not None
                if isinstance(error, PeerTimeout) and address not in self.unreachable:
                    self.on_timeout(type(request).__name__, begun_us)
                settled.fail(error)

        self.calls += 1
        self._connection_to(address).call(
            request, done, timeout_s=self.timeout_s, version_max=version_max
        )
        self.host.look_again()
        response = await settled
        assert isinstance(response, answer), f"{type(response)} in place of {answer}"
        return response

    def tell(self, request: Message, version: int) -> None:
        """Send a request that has no answer, over a connection of its own."""
        self.calls += 1
        address = self.router.guess(request)
        if address not in self._one_way:
            self._one_way[address] = OneWayConnection(self.host, self.reactor, address)
        self._one_way[address].send(request, version)
        self.host.look_again()

    def _connection_to(self, address: Address) -> WatchedConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = WatchedConnection(address, self.host, self.reactor, self._options)
            connection.on_malformed = self.problem
            self._connections[address] = connection
        return connection

    async def sleep(self, seconds: float) -> None:
        settled: Settled[None] = Settled()
        self.simulation.after(int(seconds * SECOND_US), lambda: settled.set(None))
        await settled

    def problem(self, what: str) -> None:
        """Something that must never be."""
        self.trace(what)
        self.problems.append(f"{self.name}: {what}")

    def trace(self, what: str) -> None:
        self.simulation.trace(self.name, what)

    def close(self) -> None:
        """End the program; its connection ends with it."""
        for task in self.tasks:
            task.cancel()
        self.host.end()
