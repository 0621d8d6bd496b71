"""Links between hosts: blocked in a direction, slow, and healed."""

from tidelog.testing.simulation.host import SimulatedHost
from tidelog.testing.simulation.network import Network, SimulatedTransport
from tidelog.testing.simulation.simulation import MS_US, Simulation


class Pair:
    """A stream between the hosts a and b."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.network = Network(self.simulation)
        hosts = [SimulatedHost(self.simulation, self.network, name) for name in "ab"]
        for host in hosts:
            host.boot()
            host.make_poller()
        self.hosts = hosts
        accepting = hosts[1].listen(
            ("b", 1), backlog=1, receive_buffer_bytes=0, send_buffer_bytes=0
        )
        self.a = hosts[0].connect(("b", 1))
        self.run()
        self.b, _ = accepting.accept()

    def run(self, ms: int = 50) -> None:
        self.simulation.run_until(self.simulation.now_us + ms * MS_US)


def received(transport: SimulatedTransport) -> bytes:
    room = memoryview(bytearray(100))
    try:
        return bytes(room[: transport.receive_into(room)])
    except BlockingIOError:
        return b""


def test_a_blocked_link_keeps_what_is_sent_and_delivers_it_when_it_is_healed() -> None:
    pair = Pair()
    pair.network.links.block([("a", "b")])
    pair.a.send(b"one ")
    pair.a.send(b"two")
    pair.b.send(b"back")
    pair.run()
    assert received(pair.b) == b""
    assert received(pair.a) == b"back", "the other direction works"
    pair.network.links.heal([("a", "b")])
    assert received(pair.b) == b"one two"


def test_whoever_is_cut_off_does_not_hear_that_a_machine_went_down() -> None:
    pair = Pair()
    pair.network.links.block([("b", "a")])
    pair.hosts[1].end()
    pair.run()
    assert not pair.a.is_reset
    pair.network.links.heal()
    assert pair.a.is_reset


def test_nobody_connects_over_a_blocked_link() -> None:
    pair = Pair()
    pair.network.links.block([("b", "a")])
    late = pair.hosts[0].connect(("b", 1))
    pair.run(1000)
    assert late.peer is None
    pair.network.links.heal()
    pair.run(1000)
    assert late.peer is not None


def test_a_slow_link_takes_longer() -> None:
    pair = Pair()
    pair.network.links.slow_down([("a", "b")], 100 * MS_US)
    pair.a.send(b"late")
    pair.run(50)
    assert received(pair.b) == b""
    pair.run(60)
    assert received(pair.b) == b"late"


def test_a_host_that_stands_still_does_nothing_until_it_goes_on() -> None:
    pair = Pair()
    host = pair.hosts[0]
    done: list[int] = []
    host.pause(100 * MS_US)
    host.after(10 * MS_US, lambda: done.append(pair.simulation.now_us))
    pair.run(90)
    assert done == []
    pair.run(20)
    assert len(done) == 1
