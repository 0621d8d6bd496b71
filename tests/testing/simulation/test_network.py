"""Simulated streams: ends, halves of ends, and ends that nobody hears of."""

from dataclasses import replace

import pytest

from tidelog.testing.simulation.host import SimulatedHost
from tidelog.testing.simulation.network import (
    Network,
    NetworkFaults,
    SimulatedAccepting,
    SimulatedTransport,
)
from tidelog.testing.simulation.simulation import SECOND_US, Simulation
from tidelog.world.network import BROKEN, PEER_CLOSED, READABLE, WRITABLE


class Stream:
    """A stream between two machines, `near` that connects and `far` that accepts."""

    def __init__(self, faults: NetworkFaults | None = None, **character: int) -> None:
        self.simulation = Simulation(1)
        network = Network(self.simulation, faults)
        hosts = [SimulatedHost(self.simulation, network, name) for name in ("near", "far")]
        for host in hosts:
            host.boot()
        accepting: SimulatedAccepting = hosts[1].listen(
            ("far", 1), backlog=1, receive_buffer_bytes=0, send_buffer_bytes=0
        )
        self.network = network
        self.near = hosts[0].connect(("far", 1))
        self.near._character = replace(self.near._character, **character)
        self.accepting = accepting
        if faults is None:
            self.run()
            self.far, _ = accepting.accept()

    def run(self) -> None:
        self.simulation.run_until(self.simulation.now_us + SECOND_US)


def received(transport: SimulatedTransport) -> bytes:
    room = memoryview(bytearray(10_000))
    return bytes(room[: transport.receive_into(room)])


def test_a_half_closed_stream_carries_answers() -> None:
    stream = Stream()
    stream.near.send(b"request")
    stream.near.shut_down()
    stream.run()
    assert stream.far.ready() == READABLE | WRITABLE | PEER_CLOSED
    assert received(stream.far) == b"request"
    assert received(stream.far) == b""
    stream.far.send(b"answer")
    stream.run()
    assert received(stream.near) == b"answer"


def test_an_end_that_vanished_takes_nothing_and_tells_nobody() -> None:
    stream = Stream(window_bytes=10)
    stream.near.send(b"request")
    stream.near.vanish()
    stream.run()
    assert received(stream.far) == b"request"
    assert stream.far.send(b"a long answer") == 10
    stream.run()
    with pytest.raises(BlockingIOError):
        stream.far.send(b"the rest")
    assert stream.far.ready() == 0


def test_nothing_arrives_that_was_sent_behind_a_cut() -> None:
    stream = Stream(cut_at_bytes=5)
    stream.near.send(b"abc")
    stream.near.send(b"defg")
    stream.near.send(b"hij")
    stream.simulation.run_until(stream.simulation.now_us + 400)
    assert received(stream.far) == b"abcde"
    stream.run()
    assert stream.far.ready() & BROKEN
    with pytest.raises(ConnectionResetError):
        received(stream.far)
    with pytest.raises(ConnectionResetError):
        stream.near.send(b"more")


def test_a_name_may_be_looked_up_for_long() -> None:
    stream = Stream(NetworkFaults(late_lookups=1.0))
    stream.simulation.run_until(9_000)
    assert stream.near.ready() == stream.accepting.ready() == 0
    with pytest.raises(BlockingIOError):
        received(stream.near)
    for _ in range(3):
        stream.run()
    assert stream.near.ready() == WRITABLE
    assert stream.accepting.ready() == READABLE


def test_a_name_may_not_be_found() -> None:
    stream = Stream(NetworkFaults(failed_lookups=1.0))
    assert stream.near.ready() == 0
    stream.run()
    assert stream.near.ready() & BROKEN
    assert stream.accepting.ready() == 0
    with pytest.raises(OSError, match="No route to host"):
        received(stream.near)


def test_a_stream_that_is_being_made_is_cut_with_the_others() -> None:
    """Else a slow one would live on among those that are made when the network is good."""
    stream = Stream()
    late = stream.near.host.connect(("far", 1))
    assert stream.network.cut_all(lambda transport: True) == 2
    stream.run()
    for transport in (stream.near, late):
        with pytest.raises(ConnectionResetError):
            transport.send(b"request")
