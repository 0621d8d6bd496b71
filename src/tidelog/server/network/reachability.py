"""Which of the other nodes have gone, as far as this node sees it by its own connections.

A process that ends closes its connections, which everybody who has one notices at once, long before
the controller has fenced it and the metadata tells. Until then this node sends no client to a node
that it has just lost: one that is told the old leader once more may not ask again for a second. A
node that has lost only a connection, and still listens, is back after one probe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.server.network.peer_connection import PeerConnection, PeerOptions, PeerRefused

if TYPE_CHECKING:
    from tidelog.protocol.schema import Message
    from tidelog.server.network.peer_connection import PeerError
    from tidelog.server.network.reactor import Reactor
    from tidelog.world import World
    from tidelog.world.network import Address

_PROBE_TIMEOUT_S = 2.0
# By then the controller has found out, or knows better.
_LOST_S_MAX = 5.0


class Reachability:
    """Nodes that are lost, each for a while. `address_of` says where a node is reached."""

    def __init__(
        self, world: World, reactor: Reactor, address_of: Callable[[int], Address | None]
    ) -> None:
        self._world = world
        self._reactor = reactor
        self._address_of = address_of
        self.lost: dict[int, float] = {}
        """By node: when that was."""

    def connection_lost(self, node_id: int) -> None:
        """A connection that was in use has ended, or cannot be made."""
        if node_id in self.lost:
            return
        address = self._address_of(node_id)
        if address is None:
            return
        lost_at = self.lost[node_id] = self._reactor.now

        def probed(is_gone: bool) -> None:
            if not is_gone and self.lost.get(node_id) == lost_at:
                del self.lost[node_id]

        self._reactor.call_later(_LOST_S_MAX, lambda: probed(False))
        self.probe(address, probed)

    def registered(self, node_id: int) -> None:
        """The metadata says something new of the node, and knows better from now on."""
        self.lost.pop(node_id, None)

    def probe(self, address: Address, done: Callable[[bool], None]) -> None:
        """Calls `done(is_gone)`: whether the machine answers and nobody listens there. A node that
        does not answer at all may be slow, or cut off."""
        connection = PeerConnection(
            address,
            self._world,
            self._reactor,
            PeerOptions(client_id="tidelog-probe", waits_for_peer=False),
        )

        def probed(response: Message | None, error: PeerError | None) -> None:
            connection.close()
            done(isinstance(error, PeerRefused))

        request = ApiVersionsRequest(client_software_name="tidelog", client_software_version="0")
        connection.call(request, probed, timeout_s=_PROBE_TIMEOUT_S)
