"""Sockets and epoll."""

from __future__ import annotations

import errno
import os
import select
import socket
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct

from tidelog.world.files import Buffer
from tidelog.world.network import Address, LocalPeer, Loop, OnReady

_LOCAL_BACKLOG = 128
_CREDENTIALS = Struct("iII")
_ROOT = 0


class SocketTransport:
    """A stream over a socket. The calls of the hot path are the socket's own."""

    __slots__ = ("_fd", "_loop", "_socket", "receive_into", "send", "watch")

    watch: Callable[[int], None]

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._fd = sock.fileno()
        self._loop: Loop | None = None
        self.receive_into = sock.recv_into
        self.send = sock.send

    def attach(self, loop: Loop, on_ready: OnReady, events: int, /) -> None:
        self._loop = loop
        self.watch = partial(loop.modify, self._fd)
        loop.register(self._fd, on_ready, events)

    def hand_over(self, on_ready: OnReady, events: int) -> None:
        """Call another one from now on."""
        loop = self._loop
        assert loop is not None
        loop.unregister(self._fd)
        loop.register(self._fd, on_ready, events)

    def send_gathered(self, parts: Sequence[Buffer], more: bool, /) -> int:
        return self._socket.sendmsg(parts, (), socket.MSG_MORE if more else 0)

    def send_file(self, fd: int, position: int, size_bytes: int, /) -> int:
        return os.sendfile(self._fd, fd, position, size_bytes)

    def make_send_room(self, size_bytes: int, /) -> None:
        # The kernel tells twice what was asked for, and counts its own overhead in it.
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 2 * size_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)

    def pass_file(self, fd: int, data: bytes, /) -> int:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.unregister(self._fd)
        self._socket.close()


class LocalTransport(SocketTransport):
    """A stream over a Unix socket, which takes descriptors along."""

    __slots__ = ()

    def pass_file(self, fd: int, data: bytes, /) -> int:
        # Opened anew, for the node's own descriptor may be written to.
        readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [readable]))
            return self._socket.sendmsg((data,), (rights,))
        finally:
            os.close(readable)


class ListeningSocket:
    """Accepts connections over TCP."""

    def __init__(
        self,
        address: Address,
        *,
        backlog: int,
        receive_buffer_bytes: int,
        send_buffer_bytes: int,
    ) -> None:
        self._send_buffer_bytes = send_buffer_bytes
        host, port = address
        is_dual = host == "" and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if is_dual or ":" in host else socket.AF_INET
        self._socket = sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            if is_dual:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if receive_buffer_bytes > 0:
                # Before listening: accepted sockets take it over with their window.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            sock.setblocking(False)
            sock.bind((host, port))
            sock.listen(backlog)
        except OSError:
            sock.close()
            raise
        self.fd = sock.fileno()
        self.address: Address = (host, int(sock.getsockname()[1]))

    def accept(self) -> tuple[SocketTransport, Address]:
        sock, peer = self._socket.accept()
        tune(sock)
        if self._send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        # A socket for both versions of IP gives IPv4 addresses in the form of IPv6.
        return SocketTransport(sock), (peer[0].removeprefix("::ffff:"), peer[1])

    def close(self) -> None:
        self._socket.close()


class LocalListeningSocket:
    """Accepts connections over an abstract Unix socket: it has no file and ends with the node."""

    def __init__(self, name: str) -> None:
        self.address: Address = (f"@{name}", 0)
        self._socket = sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.bind(f"\0{name}")
            sock.listen(_LOCAL_BACKLOG)
        except OSError:
            sock.close()
            raise
        self.fd = sock.fileno()

    def accept(self) -> tuple[LocalTransport, LocalPeer]:
        sock, _ = self._socket.accept()
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process_id, user_id, _ = _CREDENTIALS.unpack(raw)
        is_trusted = user_id in (os.geteuid(), _ROOT)
        return LocalTransport(sock), LocalPeer(process_id, user_id, is_trusted)

    def close(self) -> None:
        self._socket.close()


def tune(sock: socket.socket) -> None:
    """The options that every stream of a node has."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class EpollPoller:
    """Readiness by epoll, wake-ups by an eventfd."""

    __slots__ = ("_epoll", "modify", "poll", "register", "unregister", "wake_fd")

    def __init__(self) -> None:
        self._epoll = epoll = select.epoll()
        self.register = epoll.register
        self.modify = epoll.modify
        self.unregister = epoll.unregister
        self.poll = epoll.poll
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        epoll.register(self.wake_fd, select.EPOLLIN)

    def wake(self) -> None:
        os.eventfd_write(self.wake_fd, 1)

    def clear_wake(self) -> None:
        os.eventfd_read(self.wake_fd)

    def close(self) -> None:
        os.close(self.wake_fd)
        self._epoll.close()
