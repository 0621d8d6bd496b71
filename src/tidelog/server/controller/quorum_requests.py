"""What this node's replica of the quorum asks of other nodes, over the peer connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import ErrorCode
from tidelog.server.network.peer_connection import PeerError, PeerRefused, PeerVersionError
from tidelog.server.network.peers import Peers, Purpose

if TYPE_CHECKING:
    from tidelog.cluster.metadata.quorum_member import Sent
    from tidelog.protocol.schema import Message
    from tidelog.raft.voters import Destination


class QuorumRequests:
    """The replica has one request at a time under way to each node, and its own time limits."""

    def __init__(self, peers: Peers, request_timeout_ms: int) -> None:
        self._peers = peers
        self._timeout_s = request_timeout_ms / 1000

    def send(self, destination: Destination, request: Message, sent: Sent) -> None:
        connection = self._peers.at(
            destination.node_id, (destination.host, destination.port), Purpose.QUORUM
        )

        def done(response: Message | None, error: PeerError | None) -> None:
            if isinstance(error, PeerVersionError):
                sent(None, ErrorCode.UNSUPPORTED_VERSION)
            elif isinstance(error, PeerRefused):
                sent(None, ErrorCode.BROKER_NOT_AVAILABLE)
            else:
                sent(response, ErrorCode.NETWORK_EXCEPTION)

        connection.call(request, done, timeout_s=self._timeout_s)
