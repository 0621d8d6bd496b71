"""Deliberate mistakes in consensus, to show that the simulator finds such mistakes.

Each is a context manager that makes the real code wrong in one way, as a person might. A test runs
seeds with each of them until one fails; without the bug the same seeds are clean.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelog.protocol.apis.vote import VoteRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.record_batch import Buffer
from tidelog.raft.connections import Connections, InFlight
from tidelog.raft.elections import Elections
from tidelog.raft.leader_state import Leader
from tidelog.raft.membership import Membership
from tidelog.raft.outputs import ProposalEnded, Sync
from tidelog.raft.quorum import Quorum
from tidelog.raft.quorum_state_file import ElectionState
from tidelog.raft.replica import Replica
from tidelog.raft.states import Candidate, Prospective, State
from tidelog.raft.voter_history import VoterHistory
from tidelog.raft.voters import ReplicaKey, VoterSet
from tidelog.testing.simulation.planting import Plantation, replaced

PLANTED_BUGS = Plantation()
planted = PLANTED_BUGS.planted


# Elections


@PLANTED_BUGS.plant
def answer_before_persisting() -> Iterator[None]:
    """Votes and requests for votes leave before quorum-state is on disk."""
    finish = Replica._finish

    def hasty(self: Replica) -> None:
        finish(self)
        self._ready += self._held
        self._held = []

    with replaced(Replica, "_finish", hasty):
        yield


@PLANTED_BUGS.plant
def forget_vote_at_restart() -> Iterator[None]:
    """A voter that restarts does not know whom it voted for."""
    initial = Quorum._initial_state

    def forgetful(self: Quorum, election: ElectionState) -> State:
        return initial(self, election._replace(voted=None))

    with replaced(Quorum, "_initial_state", forgetful):
        yield


@PLANTED_BUGS.plant
def forget_to_persist_epochs() -> Iterator[None]:
    """Only votes are persisted, not epochs that others have begun."""
    enter = Quorum._enter

    def careless(self: Quorum, state: State) -> None:
        is_persisted = self.is_persisted
        enter(self, state)
        if self.election.voted is None:
            self.is_persisted = is_persisted

    with replaced(Quorum, "_enter", careless):
        yield


@PLANTED_BUGS.plant
def vote_for_shorter_logs() -> Iterator[None]:
    """A vote is granted whatever the candidate's log has."""
    grant = Elections._grant

    def generous(self: Elections, asker: ReplicaKey, is_up_to_date: bool) -> bool:
        return grant(self, asker, True)

    with replaced(Elections, "_grant", generous):
        yield


@PLANTED_BUGS.plant
def count_pre_votes_as_votes() -> Iterator[None]:
    """A candidate has the votes that it was only promised."""
    become_candidate = Quorum.become_candidate

    def hasty(self: Quorum) -> None:
        before = self.state
        become_candidate(self)
        if isinstance(before, Prospective) and isinstance(self.state, Candidate):
            self.state.tally = before.tally

    with replaced(Quorum, "become_candidate", hasty):
        yield


@PLANTED_BUGS.plant
def give_votes_in_pre_votes() -> Iterator[None]:
    """A pre-vote uses up the vote of the epoch."""
    vote = Elections._vote

    def confused(self: Elections, request: VoteRequest, partition: Any) -> tuple[ErrorCode, bool]:
        error, is_granted = vote(self, request, partition)
        if is_granted and partition.pre_vote:
            key = ReplicaKey(partition.replica_id, partition.replica_directory_id)
            self._grant(key, True)
        return error, is_granted

    with replaced(Elections, "_vote", confused):
        yield


@PLANTED_BUGS.plant
def pre_vote_against_a_living_leader() -> Iterator[None]:
    """A follower that hears its leader lets others depose it."""
    with replaced(Elections, "_may_pre_vote", lambda self: True):
        yield


@PLANTED_BUGS.plant
def lead_on_without_a_majority() -> Iterator[None]:
    """There is no check-quorum: a leader that nobody fetches from leads on."""
    with replaced(Leader, "has_quorum_deadline", lambda self: False):
        yield


@PLANTED_BUGS.plant
def take_late_answers() -> Iterator[None]:
    """An answer counts whichever request it was for."""

    def trusting(self: Connections, correlation: int, node_id: int) -> InFlight | None:
        return self._awaiting.pop(node_id, None)

    with replaced(Connections, "take", trusting):
        yield


# Replication


@PLANTED_BUGS.plant
def commit_older_epochs_by_count() -> Iterator[None]:
    """An entry of an older epoch counts as committed when a majority has it."""
    advance = Leader._advance

    def eager(self: Leader) -> bool:
        start = self.epoch_start_offset
        self.epoch_start_offset = max(start - 1, 0)
        try:
            return advance(self)
        finally:
            self.epoch_start_offset = start

    with replaced(Leader, "_advance", eager):
        yield


@PLANTED_BUGS.plant
def count_unsynced_log_of_leader() -> Iterator[None]:
    """The leader counts what it has appended."""
    append, local_synced = Quorum.append_as_leader, Leader.local_synced

    def optimistic(self: Quorum, batches: bytearray) -> int:
        end_offset = append(self, batches)
        leader = self.state
        if isinstance(leader, Leader) and leader.local_synced(end_offset):
            self.leader_high_watermark_moved(leader)
        return end_offset

    def never_back(self: Leader, end_offset: int) -> bool:
        return local_synced(self, max(end_offset, self.progress_of(self.key).end_offset))

    with (
        replaced(Quorum, "append_as_leader", optimistic),
        replaced(Leader, "local_synced", never_back),
    ):
        yield


@PLANTED_BUGS.plant
def report_unsynced_log_of_follower() -> Iterator[None]:
    """A follower fetches on before its disk has what it got."""
    append = Quorum.append_as_follower

    def optimistic(self: Quorum, batches: Buffer) -> None:
        append(self, batches)
        self.synced_offset = self.log.end_offset

    def synced(self: Quorum, sync: Sync) -> None:
        self._is_syncing = False

    with (
        replaced(Quorum, "append_as_follower", optimistic),
        replaced(Quorum, "synced", synced),
    ):
        yield


@PLANTED_BUGS.plant
def ignore_divergence() -> Iterator[None]:
    """A follower whose log differs from the leader's does not truncate it."""
    with replaced(Quorum, "truncate_to", lambda self, offset: None):
        yield


@PLANTED_BUGS.plant
def truncate_to_the_high_watermark() -> Iterator[None]:
    """A follower that diverges drops all that it does not know to be committed."""
    truncate = Quorum.truncate_to

    def radical(self: Quorum, offset: int) -> None:
        truncate(self, max(self.high_watermark or 0, self.log.start_offset))

    with replaced(Quorum, "truncate_to", radical):
        yield


@PLANTED_BUGS.plant
def believe_high_watermark_beyond_the_log() -> Iterator[None]:
    """A follower takes the leader's high watermark for its own."""

    def trusting(self: Quorum, leader_high_watermark: int) -> None:
        self._raise_high_watermark(leader_high_watermark)

    with replaced(Quorum, "follower_high_watermark", trusting):
        yield


@PLANTED_BUGS.plant
def acknowledge_on_append() -> Iterator[None]:
    """A proposal counts as committed when the leader has appended it."""
    propose = Quorum.propose

    def hasty(self: Quorum, batches: bytearray, token: object) -> None:
        propose(self, batches, token)
        if isinstance(self.state, Leader) and self.state.proposals:
            proposal = self.state.proposals.pop()
            self.outputs.append(ProposalEnded(proposal.token, proposal.end_offset, None))

    with replaced(Quorum, "propose", hasty):
        yield


@PLANTED_BUGS.plant
def forget_proposals_of_a_lost_epoch() -> Iterator[None]:
    """Nobody hears of proposals when their leader resigns."""

    def silent(self: Quorum, leader: Leader) -> None:
        leader.proposals.clear()
        for hear in self.when_leadership_ended:
            hear(leader)

    with replaced(Quorum, "_end_leadership", silent):
        yield


# Voters and snapshots


@PLANTED_BUGS.plant
def change_voters_when_committed() -> Iterator[None]:
    """A change of the voters counts when it is committed, not when it is in the log."""

    def committed_voters(self: Quorum) -> VoterSet:
        found = self.history.voters_at((self.high_watermark or 0) - 1)
        return self.history.voters if found is None else found

    with replaced(Quorum, "voters", property(committed_voters)):
        yield


@PLANTED_BUGS.plant
def change_two_voters_at_once() -> Iterator[None]:
    """A change of the voters does not wait for the one before it."""

    def lenient(self: Membership, leader: Leader) -> VoterSet:
        return self._quorum.voters

    with replaced(Membership, "_require_no_change", lenient):
        yield


@PLANTED_BUGS.plant
def keep_truncated_voters() -> Iterator[None]:
    """A change of the voters stays when it is truncated."""
    with replaced(VoterHistory, "truncate_to", lambda self, end_offset: None):
        yield


@PLANTED_BUGS.plant
def forget_voters_of_snapshots() -> Iterator[None]:
    """A snapshot is loaded without its voters."""

    def partial_restart(self: Quorum, offset: int) -> None:
        self.synced_offset = offset

    with replaced(Quorum, "restarted_at", partial_restart):
        yield


FOUND_WITHIN = dict.fromkeys(PLANTED_BUGS, 3000)
"""Within how many schedules, from 0 on, each is found."""
