"""A connection does not care what its transport has to do: names, attempts, handshakes, records."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from tests.server.batches import batch, fetch_request, produce_request, rows, values
from tests.server.network.record_transport import RecordSocket, RecordTransport
from tests.server.running_node import RunningNode
from tidelog.protocol.apis.metadata import MetadataRequest
from tidelog.server.network.peer_connection import PeerConnection, PeerError, PeerOptions
from tidelog.server.network.reactor import Reactor
from tidelog.server.structured_logs import StructuredLog
from tidelog.testing.wire import WireClient
from tidelog.world.network import BROKEN, WRITABLE, Address
from tidelog.world.operating_system import OperatingSystem
from tidelog.world.operating_system.connecting import (
    Candidate,
    ConnectingTransport,
    NameLookups,
)

pytestmark = pytest.mark.realtime

StartNode = Callable[..., RunningNode]
WORLD = OperatingSystem()


def _records_to(node: RunningNode) -> tuple[WireClient, RecordSocket, RecordTransport]:
    """A client over a transport with records."""
    near, far = socket.socketpair()
    for each in (near, far):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    near.settimeout(30)
    transport = RecordTransport(far)
    node.call(
        lambda: node.node.connections.add(transport, ("127.0.0.1", 4711), node.node.listeners[0])
    )
    client = WireClient(node.host, node.port)
    client.socket.close()
    records = RecordSocket(near)
    client.socket = cast(Any, records)
    return client, records, transport


def test_requests_and_answers_go_over_a_transport_with_handshake_and_records(
    start_node: StartNode,
) -> None:
    node = start_node()
    node.create_topic("records")
    client, records, transport = _records_to(node)
    sizes = [10, 300_000, 5, 70_000, 40_000, 20]
    frames = [
        client.frame(produce_request("records", {0: batch(bytes([size % 251]) * size)}), 9)
        for size in sizes
    ]
    metadata = client.frame(MetadataRequest(topics=[]), 9)

    def send() -> None:
        records.greet()
        records.sendall(b"".join(frames) + metadata)

    sender = threading.Thread(target=send)
    sender.start()
    sender.join(30)
    for number in range(len(sizes)):
        row = client.receive()[1].responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, number)
    assert client.receive()[0] == len(sizes) + 1

    found: list[bytes] = []
    while len(found) < len(sizes):
        fetch = fetch_request("records", {0: len(found)}, partition_max_bytes=500_000)
        found += values(rows(client.call(fetch, 12))[0])
    assert found == [bytes([size % 251]) * size for size in sizes]
    assert transport.hidden_reads
    assert records.keys_sent  # sends have waited for something to be received

    # Ends work as on a socket, too.
    client.send(fetch_request("records", {0: 0}, partition_max_bytes=500_000), 12)
    records.end()
    assert len(bytes(rows(client.receive()[1])[0].records)) > 300_000
    assert client.is_ended()
    client.close()


def test_a_handshake_that_fails_ends_its_connection_alone(start_node: StartNode) -> None:
    node = start_node()
    client, records, _ = _records_to(node)
    records._socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert records._socket.recv(100) == b"hello"
    assert records._socket.recv(100) == b""
    with node.client() as other:
        assert other.call(MetadataRequest(topics=[]), 9).brokers
    client.close()


# Connections that this side makes


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor(WORLD, StructuredLog(now_ms=WORLD.wall_ms, stream=io.StringIO()))
    yield reactor
    reactor.close()


class Names:
    """A name server that a test has in hand."""

    def __init__(self, *addresses: Address) -> None:
        self.addresses = addresses
        self.asked = 0
        self.may_answer = threading.Event()
        self.lookups = NameLookups(self._look_up)

    def _look_up(self, address: Address) -> list[Candidate]:
        self.asked += 1
        self.may_answer.wait(30)
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            Candidate(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, each)
            for each in self.addresses
        ]


class NamedWorld(OperatingSystem):
    def __init__(self, names: Names) -> None:
        super().__init__()
        self._lookups = names.lookups


def _turn_until(reactor: Reactor, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        reactor.turn(0.01)


def _free_address() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        return host, port


def _call(peer: PeerConnection, ended: list[object], timeout_s: float = 30) -> None:
    def done(response: object, error: PeerError | None) -> None:
        ended.append(error or response)

    peer.call(MetadataRequest(topics=[]), done, timeout_s=timeout_s)


def test_a_slow_name_server_does_not_hold_up_the_loop(
    start_node: StartNode, reactor: Reactor
) -> None:
    node = start_node()
    names = Names((node.host, node.port))
    peer = PeerConnection(("broker.example", node.port), NamedWorld(names), reactor)
    ended: list[object] = []
    ticks: list[float] = []
    begun = time.monotonic()
    _call(peer, ended)
    reactor.call_later(0.05, lambda: ticks.append(time.monotonic()))
    _turn_until(reactor, lambda: bool(ticks))
    assert ticks[0] - begun < 5
    assert names.asked == 1
    assert not ended
    names.may_answer.set()
    _turn_until(reactor, lambda: bool(ended))
    assert not isinstance(ended[0], PeerError)
    peer.close()


def test_a_name_that_is_not_found_is_told_and_tried_again(
    start_node: StartNode, reactor: Reactor
) -> None:
    node = start_node()
    names = Names()
    names.may_answer.set()
    states: list[bool] = []
    options = PeerOptions(backoff_s_min=0.01, backoff_s_max=0.02)
    peer = PeerConnection(
        ("broker.example", node.port), NamedWorld(names), reactor, options, states.append
    )
    ended: list[object] = []
    _call(peer, ended)
    _turn_until(reactor, lambda: len(states) >= 3)
    assert not any(states)
    assert names.asked >= 3
    names.addresses = ((node.host, node.port),)
    _turn_until(reactor, lambda: bool(ended))
    assert not isinstance(ended[0], PeerError)
    peer.close()


def test_all_addresses_of_a_name_are_tried(start_node: StartNode, reactor: Reactor) -> None:
    node = start_node()
    names = Names(_free_address(), _free_address(), (node.host, node.port))
    names.may_answer.set()
    states: list[bool] = []
    peer = PeerConnection(
        ("broker.example", node.port), NamedWorld(names), reactor, on_state=states.append
    )
    ended: list[object] = []
    _call(peer, ended)
    _turn_until(reactor, lambda: bool(ended))
    assert not isinstance(ended[0], PeerError)
    assert states == [True]
    assert names.asked == 1
    peer.close()


def test_look_ups_of_the_same_name_are_one(reactor: Reactor) -> None:
    names = Names()
    ready: list[int] = []
    transports = [ConnectingTransport(("broker.example", 9), names.lookups) for _ in range(5)]
    for transport in transports:
        transport.attach(reactor, ready.append, WRITABLE)
        with pytest.raises(BlockingIOError):
            transport.send(b"x")
    transports[0].close()
    names.may_answer.set()
    _turn_until(reactor, lambda: len(ready) == 4)
    assert ready == [BROKEN] * 4
    assert names.asked == 1
    for transport in transports[1:]:
        with pytest.raises(socket.gaierror, match="not known"):
            transport.receive_into(memoryview(bytearray(1)))
        transport.close()


def test_a_connection_that_is_closed_while_its_name_is_looked_up_is_not_made(
    reactor: Reactor,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        names = Names(server.getsockname())
        peer = PeerConnection(("broker.example", 9), NamedWorld(names), reactor)
        ended: list[object] = []
        _call(peer, ended)
        peer.close("not needed any more")
        names.may_answer.set()
        _turn_until(reactor, lambda: not names.lookups._waiting)
        reactor.turn(0.01)
        with pytest.raises(TimeoutError):
            server.accept()
    assert isinstance(ended[0], PeerError)


def test_what_is_no_name_is_refused(reactor: Reactor) -> None:
    ready: list[int] = []
    transport = ConnectingTransport(("x" * 300 + ".example", 9), NameLookups())
    transport.attach(reactor, ready.append, WRITABLE)
    _turn_until(reactor, lambda: bool(ready))
    assert ready == [BROKEN]
    with pytest.raises(OSError, match="not"):
        transport.receive_into(memoryview(bytearray(1)))
    transport.close()


def test_names_of_this_machine_are_found(start_node: StartNode, reactor: Reactor) -> None:
    node = start_node({"listeners": "PLAINTEXT://127.0.0.1:0"})
    peer = PeerConnection(("localhost", node.port), WORLD, reactor)
    ended: list[object] = []
    _call(peer, ended)
    _turn_until(reactor, lambda: bool(ended))
    assert not isinstance(ended[0], PeerError)
    peer.close()
