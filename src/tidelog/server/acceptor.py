"""The sockets that accept connections, one for each listener and one for this machine alone."""

from __future__ import annotations

import errno
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidelog.server.listener import Listener, ListenerError, format_address
from tidelog.server.reachable_host import reachable_host
from tidelog.server.reactor import READABLE

if TYPE_CHECKING:
    from tidelog.server.config import NodeConfig
    from tidelog.server.connections import Connections

_ACCEPTS_PER_TURN_MAX = 128
_PAUSE_S = 0.5
_OUT_OF_RESOURCES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class SocketAcceptor:
    """Accepts connections of one socket; `_welcome` says what becomes of each."""

    def __init__(self, sock: socket.socket, name: str, connections: Connections) -> None:
        self._connections = connections
        self._socket = sock
        self._name = name
        self._is_started = False

    def start(self) -> None:
        """Begin to accept."""
        self._is_started = True
        self._connections.reactor.register(self._socket.fileno(), self._accept, READABLE)

    def close(self) -> None:
        """Stop accepting; who is connected stays so."""
        if self._is_started:
            self._is_started = False
            self._connections.reactor.unregister(self._socket.fileno())
        self._socket.close()

    def _accept(self, _ready: int) -> None:
        for _ in range(_ACCEPTS_PER_TURN_MAX):
            try:
                sock, peer = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._connections.log.error(
                        "accept_paused", listener=self._name, error=error.strerror
                    )
                    self._pause(_PAUSE_S)
                    return
                # The client gave up while it stood in the queue.
                continue
            sock.setblocking(False)
            pause_ms = self._welcome(sock, peer)
            if pause_ms:
                self._pause(pause_ms / 1000)
                return

    def _welcome(self, sock: socket.socket, peer: Any) -> int:
        """Take a connection; returns for how many milliseconds to take no other."""
        raise NotImplementedError

    def _pause(self, seconds: float) -> None:
        """Let the queue wait: it stays readable, so looking at it again would spin."""
        reactor = self._connections.reactor
        reactor.modify(self._socket.fileno(), 0)
        reactor.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        if self._is_started:
            self._connections.reactor.modify(self._socket.fileno(), READABLE)


class Acceptor(SocketAcceptor):
    """Accepts connections of one listener. The port is taken at once, serving begins by `start`."""

    def __init__(self, listener: Listener, config: NodeConfig, connections: Connections) -> None:
        super().__init__(_listen(listener, config), listener.name, connections)
        self._send_buffer_bytes = config.socket_send_buffer_bytes
        port = int(self._socket.getsockname()[1])
        self.listener = replace(
            listener,
            port=port,
            advertised_host=listener.advertised_host or reachable_host(listener.host),
            advertised_port=listener.advertised_port if listener.advertised_port > 0 else port,
        )

    def _welcome(self, sock: socket.socket, peer: Any) -> int:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        # A socket for both versions of IP gives IPv4 addresses in the form of IPv6.
        connections = self._connections
        connections.add(sock, (peer[0].removeprefix("::ffff:"), peer[1]), self.listener)
        return connections.rates.record(self.listener.name, connections.reactor.now_ms)


def _listen(listener: Listener, config: NodeConfig) -> socket.socket:
    is_dual = listener.host == "" and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual or ":" in listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if is_dual:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if config.socket_receive_buffer_bytes > 0:
            # Before listening: accepted sockets take it over with their window.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
        sock.setblocking(False)
        sock.bind((listener.host, listener.port))
        sock.listen(config.socket_listen_backlog_size)
    except OSError as error:
        sock.close()
        raise ListenerError(
            f"listeners: cannot listen on {format_address(listener.host, listener.port)}: "
            f"{error.strerror}"
        ) from error
    return sock
