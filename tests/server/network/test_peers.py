"""Which connection a node uses for which other node, and when it ends."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest

from tests.server.running_node import RunningNode
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.schema import Message
from tidelog.server.network.peer_connection import PeerDisconnected, PeerError
from tidelog.server.network.peers import Peers, Purpose, UnknownNodeError
from tidelog.server.network.reactor import Reactor
from tidelog.server.structured_logs import StructuredLog
from tidelog.world.operating_system import OperatingSystem

WORLD = OperatingSystem()


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor(WORLD, StructuredLog(now_ms=WORLD.wall_ms, stream=io.StringIO()))
    yield reactor
    reactor.close()


def test_a_node_has_one_connection_for_each_purpose(
    start_node: Callable[..., RunningNode], reactor: Reactor
) -> None:
    node = start_node()
    peers = Peers(WORLD, reactor, {7: (node.host, node.port)}.get, "test")
    fetching = peers.to(7, Purpose.REPLICATION)
    assert peers.to(7, Purpose.REPLICATION) is fetching
    assert peers.to(7, Purpose.CONTROLLER) is not fetching
    answers: list[Message | None] = []
    fetching.call(ApiVersionsRequest(), lambda answer, error: answers.append(answer), timeout_s=30)
    while not answers:
        reactor.turn(0.05)
    assert answers[0] is not None
    peers.close()


def test_a_node_without_an_address_is_unknown(reactor: Reactor) -> None:
    peers = Peers(WORLD, reactor, lambda node_id: None, "test")
    with pytest.raises(UnknownNodeError, match="node 7"):
        peers.to(7, Purpose.CONTROLLER)


def test_calls_to_an_old_address_end_when_the_node_has_moved(reactor: Reactor) -> None:
    addresses = {7: ("127.0.0.1", 1)}
    peers = Peers(WORLD, reactor, addresses.get, "test")
    before = peers.to(7, Purpose.CONTROLLER)
    errors: list[PeerError | None] = []
    before.call(ApiVersionsRequest(), lambda answer, error: errors.append(error), timeout_s=30)
    addresses[7] = ("127.0.0.1", 2)
    assert peers.to(7, Purpose.CONTROLLER).address == ("127.0.0.1", 2)
    assert isinstance(errors[0], PeerDisconnected)
    peers.close()


def test_calls_to_a_node_that_has_left_end(reactor: Reactor) -> None:
    peers = Peers(WORLD, reactor, {7: ("127.0.0.1", 1)}.get, "test")
    errors: list[PeerError | None] = []
    peers.to(7, Purpose.CONTROLLER).call(
        ApiVersionsRequest(), lambda answer, error: errors.append(error), timeout_s=30
    )
    peers.forget(7)
    assert isinstance(errors[0], PeerDisconnected)
