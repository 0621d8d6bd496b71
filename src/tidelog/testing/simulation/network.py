"""Simulated streams between hosts: slow, dripping, stalled, half-closed, cut.

A stream is two `SimulatedTransport`s. What one side sends arrives at the other after the link's
delay, in order; a window limits what is under way and unread, so a reader that does not read stops
its sender. Each connection draws its own character when it is made: most are fast, some are slow,
some deliver in pieces of a few bytes, some are going to be cut at a moment or after so many bytes.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidelog.testing.simulation.links import Links
from tidelog.testing.simulation.simulation import MS_US, Simulation
from tidelog.world.files import Buffer
from tidelog.world.network import BROKEN, PEER_CLOSED, READABLE, WRITABLE, Address, Loop, OnReady

if TYPE_CHECKING:
    from tidelog.testing.simulation.host import SimulatedHost

_WINDOW_BYTES = 256 * 1024
_FIRST_DESCRIPTOR = 1_000_000
_CONNECT_AGAIN_US = 250 * MS_US


@dataclass(slots=True)
class NetworkFaults:
    """How often a connection is not what it should be; all zero is a good network."""

    slow: float = 0.0
    """Delays of tens of milliseconds."""
    drips: float = 0.0
    """Bytes arrive in pieces of a few."""
    stalls: float = 0.0
    """Stops for a while, then goes on."""
    cut_later: float = 0.0
    """Ends with a reset, at a time or within a frame."""
    small_window: float = 0.0
    """Takes a few hundred bytes at a time."""
    late_lookups: float = 0.0
    """A host's name is looked up for seconds."""
    failed_lookups: float = 0.0
    """A host's name is not found."""


@dataclass(slots=True)
class _Character:
    """What one connection is like."""

    delay_us: int
    jitter_us: int
    piece_bytes_max: int
    window_bytes: int
    stalls_at_bytes: int
    stall_us: int
    cut_at_bytes: int


class SimulatedTransport:
    """One end of a simulated stream."""

    def __init__(self, network: Network, host: SimulatedHost, character: _Character) -> None:
        self.fd = network.next_descriptor()
        self.host = host
        self.peer: SimulatedTransport | None = None
        self.is_closed = False
        self._loop: Loop | None = None
        self._network = network
        self._character = character
        self._inbox = bytearray()
        self._under_way_bytes = 0
        self._last_arrival_us = 0
        self._sent_bytes = 0
        self._is_connected = False
        self._peer_ended = False
        self._has_vanished = False
        self._error = 0
        self._held: list[bytes | None] = []
        """What a blocked link keeps from the other end; None is the end of the stream."""

    # What the reactor's callbacks use

    def attach(self, loop: Loop, on_ready: OnReady, events: int, /) -> None:
        self._loop = loop
        loop.register(self.fd, on_ready, events)

    def watch(self, events: int, /) -> None:
        assert self._loop is not None
        self._loop.modify(self.fd, events)

    def receive_into(self, room: memoryview, /) -> int:
        self._check()
        if not self._inbox:
            if self._peer_ended:
                return 0
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        size_bytes = min(len(room), len(self._inbox))
        room[:size_bytes] = self._inbox[:size_bytes]
        del self._inbox[:size_bytes]
        if self.peer is not None:
            self.peer.room_was_made()
        return size_bytes

    def send(self, data: Buffer, /) -> int:
        self._check()
        free_bytes = self._free_bytes()
        if free_bytes <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        taken = bytes(memoryview(data)[:free_bytes])
        self._transmit(taken)
        return len(taken)

    def send_gathered(self, parts: Sequence[Buffer], more: bool, /) -> int:
        return self.send(b"".join(parts))

    def send_file(self, fd: int, position: int, size_bytes: int, /) -> int:
        self._check()
        free_bytes = self._free_bytes()
        if free_bytes <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self.send(self.host.files.pread(fd, min(size_bytes, free_bytes), position))

    def make_send_room(self, size_bytes: int, /) -> None:
        pass

    def pass_file(self, fd: int, data: bytes, /) -> int:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.unregister(self.fd)
        self.host.forget(self)
        if self.peer is not None and not self._error:
            self._deliver_later(None)

    def shut_down(self) -> None:
        """Says that nothing more will be sent, and goes on receiving."""
        self._deliver_later(None)

    def vanish(self) -> None:
        """This end is gone, and the other is not told: what it sends is never taken."""
        self.is_closed = self._has_vanished = True
        self.host.forget(self)

    # Readiness

    def ready(self) -> int:
        """The events that hold now."""
        if self._error:
            return READABLE | BROKEN
        events = 0
        if self._inbox or self._peer_ended:
            events |= READABLE
        if self._peer_ended:
            events |= PEER_CLOSED
        if self._is_connected and self._free_bytes() > 0:
            events |= WRITABLE
        return events

    # What the network does to it

    def connected(self, peer: SimulatedTransport) -> None:
        self.peer = peer
        self._is_connected = True
        self.host.became_ready(self)

    def refused(self, code: int = errno.ECONNREFUSED) -> None:
        if not self._error and not self.is_closed:
            self._error = code
            self.host.became_ready(self)

    @property
    def is_reset(self) -> bool:
        return self._error == errno.ECONNRESET

    def reset(self) -> None:
        """The connection is gone, whatever was under way."""
        if not self._error and not self.is_closed:
            self._error = errno.ECONNRESET
            self._inbox.clear()
            self.host.became_ready(self)

    def hold_back(self, late_us: int) -> None:
        """What is sent from now on arrives that much later, at the soonest."""
        self._last_arrival_us = max(
            self._last_arrival_us, self._network.simulation.now_us + late_us
        )

    def room_was_made(self) -> None:
        if not self.is_closed:
            self.host.became_ready(self)

    @property
    def is_blocked(self) -> bool:
        """Whether nothing that this end sends arrives at the other for now."""
        peer = self.peer
        return peer is not None and self._network.links.is_blocked(self.host.name, peer.host.name)

    def release(self) -> None:
        """The link works again: what was sent meanwhile arrives."""
        held, self._held = self._held, []
        for data in held:
            self._hand_over(data)

    def _check(self) -> None:
        if self.is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._error:
            raise OSError(self._error, os.strerror(self._error))

    def _free_bytes(self) -> int:
        peer = self.peer
        unread_bytes = 0 if peer is None else len(peer._inbox)
        return self._character.window_bytes - self._under_way_bytes - unread_bytes

    def _transmit(self, data: bytes) -> None:
        if not self.host.has_power:
            return  # the machine is off; nothing leaves it any more
        character = self._character
        before = self._sent_bytes
        self._sent_bytes += len(data)
        if before >= character.cut_at_bytes:
            return  # the reset is on its way; a stream has no holes
        if self._sent_bytes >= character.cut_at_bytes:
            self._network.simulation.count("connections cut")
            data = data[: character.cut_at_bytes - before]
            self._network.cut_later(self)
        if before < character.stalls_at_bytes <= self._sent_bytes:
            self._network.simulation.count("connections stalled")
            self._last_arrival_us = max(
                self._last_arrival_us, self._network.simulation.now_us + character.stall_us
            )
        piece_bytes = character.piece_bytes_max
        for at in range(0, len(data), piece_bytes):
            self._deliver_later(data[at : at + piece_bytes])

    def _deliver_later(self, data: bytes | None) -> None:
        """None is the end of the stream."""
        simulation = self._network.simulation
        delay_us = self._network.delay_us(self._character.delay_us, self._character.jitter_us)
        if self.peer is not None:
            delay_us += self._network.links.extra_us(self.host.name, self.peer.host.name)
        arrival_us = max(self._last_arrival_us + 1, simulation.now_us + delay_us)
        self._last_arrival_us = arrival_us
        if data is not None:
            self._under_way_bytes += len(data)
        simulation.at(arrival_us, lambda: self._arrive(data))

    def _arrive(self, data: bytes | None) -> None:
        if self.is_blocked:
            self._held.append(data)
            self._network.links.held[self.fd] = self
        else:
            self._hand_over(data)

    def _hand_over(self, data: bytes | None) -> None:
        peer = self.peer
        if peer is not None and peer._has_vanished:
            return
        if data is not None:
            self._under_way_bytes -= len(data)
        if peer is None or peer.is_closed or peer._error:
            return
        if data is None:
            peer._peer_ended = True
        elif self.is_closed:
            # Whoever gave the connection up may have said the same over another one since.
            self._network.simulation.count("deliveries after a connection was given up")
            peer._inbox += data
        else:
            peer._inbox += data
        peer.host.became_ready(peer)


class SimulatedAccepting:
    """A listening socket of a simulated host."""

    def __init__(self, network: Network, host: SimulatedHost, address: Address) -> None:
        self.fd = network.next_descriptor()
        self.address = address
        self.host = host
        self._network = network
        self._waiting: deque[tuple[SimulatedTransport, Address]] = deque()

    def accept(self) -> tuple[SimulatedTransport, Address]:
        if not self._waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self._waiting.popleft()

    def close(self) -> None:
        self.host.forget(self)
        self._network.stop_listening(self)
        for transport, _ in self._waiting:
            transport.close()

    def ready(self) -> int:
        return READABLE if self._waiting else 0

    def arrived(self, transport: SimulatedTransport, peer: Address) -> None:
        self._waiting.append((transport, peer))
        self.host.became_ready(self)


class Network:
    """All listening sockets and streams of a simulation."""

    def __init__(self, simulation: Simulation, faults: NetworkFaults | None = None) -> None:
        self.simulation = simulation
        self.faults = faults or NetworkFaults()
        self.links = Links()
        self._random = simulation.random("network")
        self._listening: dict[Address, SimulatedAccepting] = {}
        self._streams: dict[int, SimulatedTransport] = {}
        self._descriptor = _FIRST_DESCRIPTOR
        self._next_port = 40_000

    def next_descriptor(self) -> int:
        self._descriptor += 1
        return self._descriptor

    def delay_us(self, delay_us: int, jitter_us: int) -> int:
        return delay_us + (self._random.randrange(jitter_us) if jitter_us else 0)

    def listen(self, host: SimulatedHost, address: Address) -> SimulatedAccepting:
        if address in self._listening:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        accepting = SimulatedAccepting(self, host, address)
        self._listening[address] = accepting
        return accepting

    def stop_listening(self, accepting: SimulatedAccepting) -> None:
        if self._listening.get(accepting.address) is accepting:
            del self._listening[accepting.address]

    def connect(self, host: SimulatedHost, address: Address) -> SimulatedTransport:
        """Begins a connection: the name is looked up, and a round trip later it stands, or is
        refused."""
        character = self._draw_character()
        here = SimulatedTransport(self, host, character)
        there_at = self.delay_us(character.delay_us, character.jitter_us)
        self._next_port += 1
        peer: Address = (host.name, self._next_port)
        self._streams[here.fd] = here
        lookup_us = self._draw_lookup_us()
        if lookup_us < 0:
            self.simulation.after(-lookup_us, lambda: here.refused(errno.EHOSTUNREACH))
        else:
            arrival_us = lookup_us + there_at
            self.simulation.after(arrival_us, lambda: self._arrive_at(address, here, peer))
        return here

    def _arrive_at(self, address: Address, here: SimulatedTransport, peer: Address) -> None:
        if here.is_closed or here.is_reset:
            return
        if self.links.is_blocked(here.host.name, address[0]) or self.links.is_blocked(
            address[0], here.host.name
        ):
            self.simulation.after(_CONNECT_AGAIN_US, lambda: self._arrive_at(address, here, peer))
            return
        accepting = self._listening.get(address)
        character = here._character
        back_us = self.delay_us(character.delay_us, character.jitter_us)
        if accepting is None:
            self.simulation.after(back_us, here.refused)
            return
        there = SimulatedTransport(self, accepting.host, character)
        accepting.host.sockets[there.fd] = there
        there.connected(here)
        self.simulation.after(back_us, lambda: None if here.is_closed else here.connected(there))
        accepting.arrived(there, peer)

    def give_up(
        self, transports: Sequence[SimulatedTransport], after_us: int, late_us: int
    ) -> None:
        """Whoever has made these connections gives them up in a moment. What is sent over them by
        then arrives later, when others may have been made."""
        for transport in transports:
            transport.hold_back(late_us)

        def give_up() -> None:
            for transport in transports:
                transport.reset()

        self.simulation.after(after_us, give_up)

    def cut_later(self, transport: SimulatedTransport) -> None:
        """Both ends of a stream get a reset, in a moment."""
        peer = transport.peer

        def cut() -> None:
            transport.reset()
            if peer is not None:
                peer.reset()

        self.simulation.after(self._random.randrange(5 * MS_US), cut)

    def end_faults(self) -> None:
        """A good network from here on. A connection's character is for life: what is slow, or about
        to be cut, is replaced."""
        self.faults = NetworkFaults()
        self.links.heal()
        self.cut_all(lambda transport: True)

    def cut_all(self, chosen: Callable[[SimulatedTransport], bool]) -> int:
        """Resets every stream whose connecting end is chosen, one that is only being made too; says
        how many."""
        cut = 0
        for fd, transport in list(self._streams.items()):
            if transport.is_closed:
                del self._streams[fd]
            elif chosen(transport):
                del self._streams[fd]
                transport.reset()
                if transport.peer is not None:
                    transport.peer.reset()
                cut += 1
        return cut

    def host_went_down(self, host: SimulatedHost) -> None:
        """Whoever is connected to the host hears of it by a reset, sooner or later."""
        for transport in host.transports():
            peer = transport.peer
            transport.is_closed = True
            if peer is not None:
                delay_us = self._random.randrange(20 * MS_US)
                self.simulation.after(delay_us, partial(self._reset_end, transport, peer))
        for address, accepting in list(self._listening.items()):
            if accepting.host is host:
                del self._listening[address]

    def _reset_end(self, dead: SimulatedTransport, peer: SimulatedTransport) -> None:
        """Whoever is cut off from a machine does not hear that it went down."""
        if dead.is_blocked:
            self.links.when_healed.append(partial(self._reset_end, dead, peer))
        else:
            peer.reset()

    def _draw_lookup_us(self) -> int:
        """How long a name is looked up; below zero when it is not found after this time."""
        random, faults = self._random, self.faults
        lookup_us = random.randrange(20, 2 * MS_US)
        if random.random() < faults.late_lookups:
            self.simulation.count("late look-ups")
            lookup_us = random.randrange(10 * MS_US, 3000 * MS_US)
        if random.random() < faults.failed_lookups:
            self.simulation.count("failed look-ups")
            return -lookup_us
        return lookup_us

    def _draw_character(self) -> _Character:
        random, faults = self._random, self.faults
        never = 1 << 60
        is_slow = random.random() < faults.slow
        drips = random.random() < faults.drips
        is_small = random.random() < faults.small_window
        for name, holds in (("slow", is_slow), ("dripping", drips), ("narrow", is_small)):
            if holds:
                self.simulation.count(f"{name} connections")
        return _Character(
            delay_us=random.randrange(*((5 * MS_US, 40 * MS_US) if is_slow else (30, 300))),
            jitter_us=10 * MS_US if is_slow else 50,
            piece_bytes_max=random.choice((1, 3, 7, 50)) if drips else 1 << 20,
            window_bytes=random.randrange(100, 2000) if is_small else _WINDOW_BYTES,
            stalls_at_bytes=random.randrange(2000) if random.random() < faults.stalls else never,
            stall_us=random.randrange(20 * MS_US, 3000 * MS_US),
            cut_at_bytes=random.randrange(4000) if random.random() < faults.cut_later else never,
        )
