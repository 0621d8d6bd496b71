"""The roles of a replica within an epoch.

    Unattached   knows an epoch and, if at all, not how to reach its leader
    Prospective  asks whether an election would be won (pre-vote), before it begins an epoch
    Candidate    has begun an epoch and asks for votes; it has voted for itself
    Leader       see leader_state.py
    Resigned     was leader of this epoch and is not any more; nobody else will be
    Follower     fetches from a leader

    Unattached -> Prospective -> Candidate -> Leader -> Resigned -> Unattached, of the next epoch
    Follower   -> Prospective, when nothing was heard from the leader
    any        -> Unattached or Follower, when a newer epoch is heard of

A replica that is no voter (an observer) is only ever Unattached or Follower, or Leader and Resigned
on its way out. An epoch never goes back, and within an epoch a vote is never taken back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.raft.leader_state import Leader
from tidelog.raft.raft_log import SnapshotId
from tidelog.raft.vote_tally import VoteTally
from tidelog.raft.voters import Endpoints, ReplicaKey

NEVER_MS = 1 << 62


@dataclass(slots=True)
class Unattached:
    epoch: int
    leader_id: int | None
    voted: ReplicaKey | None
    election_deadline_ms: int  # NEVER_MS for observers


@dataclass(slots=True)
class Prospective:
    """`leader_id` is who led the epoch when this replica lost contact."""

    epoch: int
    leader_id: int | None
    leader_endpoints: Endpoints
    voted: ReplicaKey | None
    tally: VoteTally
    election_deadline_ms: int


@dataclass(slots=True)
class Candidate:
    epoch: int
    voted: ReplicaKey
    tally: VoteTally
    election_deadline_ms: int


@dataclass(slots=True)
class Resigned:
    epoch: int
    leader_id: int
    unacknowledged: set[int]
    preferred: list[ReplicaKey]
    election_deadline_ms: int


@dataclass(slots=True)
class SnapshotDownload:
    snapshot_id: SnapshotId
    size_bytes: int = 0  # received so far


@dataclass(slots=True)
class Follower:
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    voted: ReplicaKey | None
    fetch_deadline_ms: int
    update_voter_deadline_ms: int
    has_fetched: bool = False
    has_updated_leader: bool = False
    download: SnapshotDownload | None = field(default=None)


State = Unattached | Prospective | Candidate | Leader | Resigned | Follower
