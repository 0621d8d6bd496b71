"""What a replica asks its caller to do, as plain values, in the order in which it is to be done.

What depends on a `Persist` or an `InstallSnapshot` comes only after the caller has said that it is
done; until then the replica takes inputs and lets them wait. So the caller needs no rule but this
one: carry out what is there, report what is finished.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.protocol.errors import ApiError
from tidelog.protocol.schema import Message
from tidelog.raft.quorum_state_file import ElectionState
from tidelog.raft.raft_log import SnapshotId
from tidelog.raft.voters import Destination


class Send(NamedTuple):
    """A request; `Replica.answered` or `Replica.request_failed` hears how it ends."""

    correlation: int
    destination: Destination
    request: Message


class Answer(NamedTuple):
    """The response to the request that was received with this token."""

    token: object
    response: Message


class Persist(NamedTuple):
    """Write `quorum-state` and sync it, its directory too; then call `Replica.persisted`."""

    state: ElectionState
    kraft_version: int
    voter_ids: tuple[int, ...]


class Sync(NamedTuple):
    """Sync the log up to `end_offset`; then call `Replica.synced` with this very value. One is
    under way at a time, and the log is not truncated meanwhile."""

    end_offset: int


class InstallSnapshot(NamedTuple):
    """The received snapshot is complete: sync it, list it, and restart the log at its end, in that
    order; then call `Replica.snapshot_installed`. The state machine is loaded from it."""

    snapshot_id: SnapshotId


class HighWatermarkMoved(NamedTuple):
    """Everything below is committed."""

    offset: int


class LeaderChanged(NamedTuple):
    """Who leads which epoch. The leader itself hears of it when its epoch has committed its first
    record: then it knows everything that the leaders before it committed."""

    leader_id: int | None
    epoch: int


class ProposalEnded(NamedTuple):
    """A proposal is committed, up to `end_offset`, or has failed. It comes once for each.

    An error of type NotAppended says that no log has it and none ever will; with any other error
    nobody can tell.
    """

    token: object
    end_offset: int
    error: ApiError | None


Output = (
    Send
    | Answer
    | Persist
    | Sync
    | InstallSnapshot
    | HighWatermarkMoved
    | LeaderChanged
    | ProposalEnded
)
