"""The connections of this node to the other nodes, one for each node and purpose.

Calls for different purposes do not wait for each other: a heartbeat stands behind no long poll.
Where a node is reached is looked up when it is asked for, so one that has moved is found at its new
address, and what still waits for the old one ends with an error.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from tidelog.server.network.peer_connection import PeerConnection, PeerOptions

if TYPE_CHECKING:
    from tidelog.server.network.reactor import Reactor
    from tidelog.world import World
    from tidelog.world.network import Address


class Purpose(Enum):
    """What a connection is for."""

    QUORUM = "quorum"
    CONTROLLER = "controller"
    """Registration, heartbeats and what else the node itself asks of the controller."""
    FORWARDING = "forwarding"
    """What clients ask of the controller."""
    REPLICATION = "replication"
    TRANSACTIONS = "transactions"
    """Markers, whose answers wait for replicas."""
    VERIFICATION = "verification"
    """Whether a partition is in a transaction, which producers wait for."""


# Another node may lead by the time that this one is there again.
_TO_WHO_LEADS = (Purpose.QUORUM, Purpose.CONTROLLER, Purpose.FORWARDING)


class UnknownNodeError(LookupError):
    """Nobody knows where the node is reached; its registration may be on its way."""


class Peers:
    """`address_of` says where a node is reached, None when that is not known. `on_lost` hears of a
    node whose connection for replication, which is always in use, has ended or cannot be made."""

    def __init__(
        self,
        world: World,
        reactor: Reactor,
        address_of: Callable[[int], Address | None],
        client_id: str,
        on_lost: Callable[[int], None] = lambda node_id: None,
    ) -> None:
        self._world = world
        self._reactor = reactor
        self._address_of = address_of
        self._client_id = client_id
        self._on_lost = on_lost
        self._connections: dict[tuple[int, Purpose], PeerConnection] = {}

    def to(self, node_id: int, purpose: Purpose) -> PeerConnection:
        """The connection to a node; it is made by the first call. Raises UnknownNodeError."""
        address = self._address_of(node_id)
        if address is None:
            raise UnknownNodeError(f"node {node_id} has no address")
        return self.at(node_id, address, purpose)

    def at(self, node_id: int, address: Address, purpose: Purpose) -> PeerConnection:
        """The same for a node whose address the caller knows."""
        known = self._connections.get((node_id, purpose))
        if known is not None:
            if known.address == address:
                return known
            known.close("the node has moved")
        connection = PeerConnection(
            address,
            self._world,
            self._reactor,
            PeerOptions(
                client_id=f"{self._client_id}-{purpose.value}",
                waits_for_peer=purpose not in _TO_WHO_LEADS,
            ),
            partial(self._state_changed, node_id) if purpose is Purpose.REPLICATION else None,
        )
        self._connections[node_id, purpose] = connection
        return connection

    def _state_changed(self, node_id: int, is_ready: bool) -> None:
        if not is_ready:
            self._on_lost(node_id)

    def controller_is(self, node_id: int) -> None:
        """Another node is the controller now, or none (-1): what others were asked ends."""
        for (other_id, purpose), connection in self._connections.items():
            if other_id != node_id and purpose in (Purpose.CONTROLLER, Purpose.FORWARDING):
                connection.close("it is not the controller any more")

    def forget(self, node_id: int) -> None:
        """The node has left the cluster: its connections and their calls end."""
        for key in [key for key in self._connections if key[0] == node_id]:
            self._connections.pop(key).close("the node has left the cluster")

    def close(self) -> None:
        """End all connections; what waits is told."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close("the node stops")
