"""What a replica knows of itself from its configuration and its disk."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.raft.voters import (
    RECONFIGURATION_VERSION,
    Endpoints,
    ReplicaKey,
    VoterNode,
    VoterSet,
)

NO_VOTERS = VoterSet(())


@dataclass(slots=True, frozen=True)
class LocalNode:
    """The replica itself. `bootstrap` are servers that may know who leads; `static_voters` are the
    voters of the configuration, for kraft.version 0."""

    key: ReplicaKey
    endpoints: Endpoints
    listener: str  # the one that voters use among themselves
    cluster_id: str
    bootstrap: tuple[tuple[str, int], ...] = ()
    static_voters: VoterSet = NO_VOTERS
    max_kraft_version: int = RECONFIGURATION_VERSION

    @property
    def as_voter(self) -> VoterNode:
        return VoterNode(self.key, self.endpoints, 0, self.max_kraft_version)
