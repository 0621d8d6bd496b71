"""The Unix socket for readers on this machine, who are given files in place of records.

It has a name of its own at each start and no file (Linux calls that an abstract socket), so it is
gone with the node, and who knows the name has it from this very node: clients ask for the setting
`local.reads.socket`. Only the user that the node runs as, and root, are let in: those could read
the files in any case. Everything else is as on the first listener.
"""

from __future__ import annotations

import os
import socket
import sys
from struct import Struct
from typing import TYPE_CHECKING, Any

from tidelog.server.acceptor import SocketAcceptor

if TYPE_CHECKING:
    from tidelog.server.connections import Connections
    from tidelog.server.listener import Listener

HOST = "local"
"""What stands for the address of such a client."""

_BACKLOG = 128
_CREDENTIALS = Struct("iII")
_ROOT = 0


class LocalListener(SocketAcceptor):
    """Accepts connections from the same machine and user."""

    def __init__(self, like: Listener, connections: Connections) -> None:
        name = f"tidelog-{os.urandom(16).hex()}"
        super().__init__(_listen(f"\0{name}"), HOST, connections)
        self.address = f"@{name}"
        self._like = like

    def _welcome(self, sock: socket.socket, peer: Any) -> int:
        process_id, user_id = _peer_of(sock)
        if user_id in (os.geteuid(), _ROOT):
            self._connections.add(sock, (HOST, process_id), self._like, passes_files=True)
        else:
            sock.close()
            self._connections.log.warning("local_reader_refused", process=process_id, user=user_id)
        return 0


def listen_locally(like: Listener, connections: Connections) -> LocalListener | None:
    """Listen for readers on this machine, where that can be."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return LocalListener(like, connections)
    except OSError as error:
        connections.log.warning("local_reads_unavailable", error=error.strerror)
        return None


def _peer_of(sock: socket.socket) -> tuple[int, int]:
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process_id, user_id, _ = _CREDENTIALS.unpack(raw)
    return process_id, user_id


def _listen(name: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.bind(name)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
