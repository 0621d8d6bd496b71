"""Calls to another node: answers in order, time-outs, broken connections, limits."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.server.running_node import RunningNode
from tidelog.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.schema import Message
from tidelog.server.network.peer_connection import (
    PeerConnection,
    PeerDisconnected,
    PeerError,
    PeerOptions,
    PeerOverloaded,
    PeerTimeout,
    PeerVersionError,
)
from tidelog.server.network.reactor import Reactor
from tidelog.server.structured_logs import StructuredLog
from tidelog.world.operating_system import OperatingSystem

StartNode = Callable[..., RunningNode]
WORLD = OperatingSystem()


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def reactor(log: io.StringIO) -> Iterator[Reactor]:
    reactor = Reactor(WORLD, StructuredLog(now_ms=WORLD.wall_ms, stream=log))
    yield reactor
    reactor.close()


class Calls:
    """What came of each call, in the order in which they ended."""

    def __init__(self, reactor: Reactor, peer: PeerConnection) -> None:
        self._reactor = reactor
        self._peer = peer
        self.ended: list[tuple[str, Message | PeerError]] = []

    def make(self, name: str, request: Message | None = None, timeout_s: float = 30.0) -> None:
        def done(response: Message | None, error: PeerError | None) -> None:
            result = error if response is None else response
            assert result is not None
            self.ended.append((name, result))

        self._peer.call(request or MetadataRequest(topics=[]), done, timeout_s=timeout_s)

    def wait_for(self, count: int) -> None:
        deadline = WORLD.monotonic() + 30
        while len(self.ended) < count:
            assert WORLD.monotonic() < deadline, f"only {self.ended} have ended"
            self._reactor.turn(0.05)


def test_calls_are_answered_in_order_by_a_real_node(
    start_node: StartNode, reactor: Reactor
) -> None:
    node = start_node()
    peer = PeerConnection((node.host, node.port), WORLD, reactor)
    calls = Calls(reactor, peer)
    for number in range(20):
        calls.make(
            f"{number}", MetadataRequest(topics=None) if number % 2 else ApiVersionsRequest()
        )
    calls.wait_for(20)
    assert [name for name, _ in calls.ended] == [f"{number}" for number in range(20)]
    kinds = [type(result) for _, result in calls.ended]
    assert kinds == [ApiVersionsResponse, MetadataResponse] * 10
    assert peer.is_ready
    assert peer.waiting == 0
    peer.close()


def test_a_peer_that_serves_only_older_versions_is_not_called(
    start_node: StartNode, reactor: Reactor
) -> None:
    node = start_node()
    peer = PeerConnection((node.host, node.port), WORLD, reactor)
    errors: list[PeerError | None] = []
    peer.call(
        MetadataRequest(topics=None),
        lambda response, error: errors.append(error),
        timeout_s=30.0,
        version_min=99,
    )
    while not errors:
        reactor.turn(0.1)
    assert isinstance(errors[0], PeerVersionError)
    peer.close()


class Server:
    """A listening socket whose connections a test handles by hand."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.settimeout(30)
        self.address: tuple[str, int] = self.socket.getsockname()

    def serve(self, handle: Callable[[socket.socket], None]) -> threading.Thread:
        def run() -> None:
            connection, _ = self.socket.accept()
            with connection:
                handle(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.socket.close()


def test_a_peer_that_does_not_answer_ends_the_call_in_time(
    reactor: Reactor, server: Server
) -> None:
    ended = threading.Event()

    def say_nothing(_: socket.socket) -> None:
        ended.wait(30)

    served = server.serve(say_nothing)
    peer = PeerConnection(server.address, WORLD, reactor)
    calls = Calls(reactor, peer)
    calls.make("late", timeout_s=0.05)
    calls.wait_for(1)
    assert isinstance(calls.ended[0][1], PeerTimeout)
    ended.set()
    served.join()
    peer.close()


def test_a_connection_that_breaks_ends_what_was_sent_and_keeps_what_was_not(
    start_node: StartNode, reactor: Reactor
) -> None:
    node = start_node()
    states: list[bool] = []
    peer = PeerConnection(
        (node.host, node.port), WORLD, reactor, PeerOptions(in_flight_max=1), states.append
    )
    calls = Calls(reactor, peer)
    calls.make("first")
    calls.wait_for(1)
    for connection in list(node.node.connections.all.values()):
        node.call(lambda connection=connection: connection.close("the test says so"))  # type: ignore[misc]
    calls.make("lost")
    calls.make("kept")
    calls.wait_for(3)
    results = dict(calls.ended)
    assert isinstance(results["lost"], PeerDisconnected)
    assert isinstance(results["kept"], MetadataResponse)
    assert states == [True, False, True]
    peer.close()


def test_nobody_listening_is_tried_again_with_pauses_until_the_time_is_up(
    reactor: Reactor, server: Server
) -> None:
    server.socket.close()
    states: list[bool] = []
    options = PeerOptions(backoff_s_min=0.01, backoff_s_max=0.02)
    peer = PeerConnection(server.address, WORLD, reactor, options, states.append)
    calls = Calls(reactor, peer)
    calls.make("never", timeout_s=0.3)
    calls.wait_for(1)
    assert isinstance(calls.ended[0][1], PeerTimeout)
    assert 3 <= len(states) <= 40
    assert not any(states)
    peer.close()


def test_a_call_that_is_not_sent_in_time_may_close_the_connection(
    reactor: Reactor, server: Server, log: io.StringIO
) -> None:
    server.socket.close()
    peer = PeerConnection(server.address, WORLD, reactor)
    errors: list[PeerError | None] = []

    def give_up(response: Message | None, error: PeerError | None) -> None:
        errors.append(error)
        peer.close()

    peer.call(MetadataRequest(topics=None), give_up, timeout_s=0.1)
    while not errors:
        reactor.turn(0.1)
    assert isinstance(errors[0], PeerTimeout)
    assert "timer_failed" not in log.getvalue()


def test_garbage_in_place_of_an_answer_ends_the_connection(
    reactor: Reactor, server: Server
) -> None:
    def handle(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.recv(1)

    served = server.serve(handle)
    states: list[bool] = []
    peer = PeerConnection(server.address, WORLD, reactor, on_state=states.append)
    calls = Calls(reactor, peer)
    calls.make("call")
    while not states:
        reactor.turn(0.05)
    assert states == [False]
    peer.close("enough")
    calls.wait_for(1)
    assert isinstance(calls.ended[0][1], PeerDisconnected)
    served.join()


def test_more_calls_than_may_wait_are_refused(reactor: Reactor, server: Server) -> None:
    peer = PeerConnection(server.address, WORLD, reactor, PeerOptions(queued_max=2))
    calls = Calls(reactor, peer)
    for name in ("one", "two", "three"):
        calls.make(name)
    calls.wait_for(1)
    assert calls.ended[0][0] == "three"
    assert isinstance(calls.ended[0][1], PeerOverloaded)
    peer.close()
    assert [name for name, _ in calls.ended] == ["three", "one", "two"]


def test_an_answer_whose_taker_fails_does_not_keep_others_from_theirs(
    start_node: StartNode, reactor: Reactor, log: io.StringIO
) -> None:
    node = start_node()
    peer = PeerConnection((node.host, node.port), WORLD, reactor)
    calls = Calls(reactor, peer)

    def fail(response: Message | None, error: PeerError | None) -> None:
        raise RuntimeError("a bug")

    peer.call(MetadataRequest(topics=[]), fail, timeout_s=30)
    calls.make("next")
    calls.wait_for(1)
    assert isinstance(calls.ended[0][1], MetadataResponse)
    assert "peer_callback_failed" in log.getvalue()
    peer.close()
