"""Accepting connections: from the network, and from processes of this machine alone."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Generic

from tidelog.server.network.listener import Listener, ListenerError, format_address
from tidelog.world.network import READABLE, Accepting, Address, LocalPeer, Peer, Transport

if TYPE_CHECKING:
    from tidelog.server.configuration.node_config import NodeConfig
    from tidelog.server.network.connections import Connections
    from tidelog.world import World

LOCAL_HOST = "local"
"""What stands for the address of a client on this machine that is given files."""

_ACCEPTS_PER_TURN_MAX = 128
_PAUSE_S = 0.5
_OUT_OF_RESOURCES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Acceptor(Generic[Peer]):
    """Accepts what comes to one address. The address is taken already, serving begins by `start`.

    `welcome(transport, peer)` takes each connection and says for how many milliseconds to take no
    other.
    """

    def __init__(
        self,
        accepting: Accepting[Peer],
        listener: Listener,
        connections: Connections,
        welcome: Callable[[Transport, Peer], int],
    ) -> None:
        self.listener = listener
        self._accepting = accepting
        self._connections = connections
        self._welcome = welcome
        self._is_started = False

    def start(self) -> None:
        """Begin to accept, if that has not begun."""
        if not self._is_started:
            self._is_started = True
            self._connections.reactor.register(self._accepting.fd, self._accept, READABLE)

    def close(self) -> None:
        """Stop accepting; who is connected stays so."""
        if self._is_started:
            self._is_started = False
            self._connections.reactor.unregister(self._accepting.fd)
        self._accepting.close()

    def _accept(self, _ready: int) -> None:
        for _ in range(_ACCEPTS_PER_TURN_MAX):
            try:
                transport, peer = self._accepting.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._connections.log.error(
                        "accept_paused", listener=self.listener.name, error=error.strerror
                    )
                    self._pause(_PAUSE_S)
                    return
                # The client gave up while it stood in the queue.
                continue
            pause_ms = self._welcome(transport, peer)
            if pause_ms:
                self._pause(pause_ms / 1000)
                return

    def _pause(self, seconds: float) -> None:
        """Let the queue wait: it stays readable, so looking at it again would spin."""
        reactor = self._connections.reactor
        reactor.modify(self._accepting.fd, 0)
        reactor.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        if self._is_started:
            self._connections.reactor.modify(self._accepting.fd, READABLE)


def accept_on(
    listener: Listener, config: NodeConfig, world: World, connections: Connections
) -> Acceptor[Address]:
    """Take a listener's address; the acceptor's own listener has the port that it got."""
    try:
        accepting = world.listen(
            (listener.host, listener.port),
            backlog=config.socket_listen_backlog_size,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            send_buffer_bytes=config.socket_send_buffer_bytes,
        )
    except OSError as error:
        raise ListenerError(
            f"listeners: cannot listen on {format_address(listener.host, listener.port)}: "
            f"{error.strerror}"
        ) from error
    port = accepting.address[1]
    bound = replace(
        listener,
        port=port,
        advertised_host=listener.advertised_host or world.reachable_host(listener.host),
        advertised_port=listener.advertised_port if listener.advertised_port > 0 else port,
    )

    def welcome(transport: Transport, peer: Address) -> int:
        connections.add(transport, peer, bound)
        return connections.rates.record(bound.name, connections.reactor.now_ms)

    return Acceptor(accepting, bound, connections, welcome)


class LocalAcceptor:
    """Accepts readers on this machine, who are given files in place of records.

    The address has a name of its own at each start, so who knows it has it from this very node:
    clients ask for the setting `local.reads.socket`. Only those are let in who could read the
    files in any case. Everything else is as on the first listener.
    """

    def __init__(
        self, accepting: Accepting[LocalPeer], like: Listener, connections: Connections
    ) -> None:
        self.address = accepting.address[0]
        self._like = like
        self._connections = connections
        self._acceptor = Acceptor(accepting, like, connections, self._welcome)
        self.start = self._acceptor.start
        self.close = self._acceptor.close

    def _welcome(self, transport: Transport, peer: LocalPeer) -> int:
        if peer.is_trusted:
            self._connections.add(
                transport, (LOCAL_HOST, peer.process_id), self._like, passes_files=True
            )
        else:
            transport.close()
            self._connections.log.warning(
                "local_reader_refused", process=peer.process_id, user=peer.user_id
            )
        return 0


def accept_locally(world: World, like: Listener, connections: Connections) -> LocalAcceptor | None:
    """Listen for readers on this machine, where that can be."""
    try:
        accepting = world.listen_locally()
    except OSError as error:
        connections.log.warning("local_reads_unavailable", error=error.strerror)
        return None
    return None if accepting is None else LocalAcceptor(accepting, like, connections)
