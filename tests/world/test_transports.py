"""Transports of the operating system."""

from __future__ import annotations

import socket

from tidelog.world.operating_system.network import SocketTransport


def test_room_to_send_is_made_and_never_taken_away() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
        transport = SocketTransport(ours)
        data = bytes(1_000_000)
        little = transport.send(data)
        assert little < 100_000
        transport.make_send_room(200_000)
        more = transport.send(data)
        assert little + more > 100_000
        room = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        transport.make_send_room(10_000)
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == room
