"""Elections: Vote, BeginQuorumEpoch and EndQuorumEpoch, asked and answered.

A voter that has not heard from a leader for a while first asks whether it would be elected
(pre-vote), which changes nothing for anybody; only with a majority of yeses it begins an epoch. So
a voter that was cut off does not depose a leader when it comes back, and a leader that is alive
stays: a follower says yes only while it has not yet fetched from its leader, or not for a while.

A vote is granted once per epoch, to a replica whose log is at least as up to date as the own one,
and only while no leader of the epoch is known. It is answered when it is on disk (`Replica` sees to
that).
"""

from __future__ import annotations

from typing import Any

from tidelog.protocol.apis.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from tidelog.protocol.apis.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from tidelog.protocol.apis.vote import VoteRequest, VoteResponse
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.raft import messages
from tidelog.raft.connections import InFlight
from tidelog.raft.leader_state import Leader
from tidelog.raft.leader_tracking import LeaderTracking
from tidelog.raft.quorum import Quorum
from tidelog.raft.raft_log import log_end
from tidelog.raft.states import Candidate, Follower, Prospective, Resigned, Unattached
from tidelog.raft.voters import Endpoint, Endpoints, ReplicaKey


class Elections:
    """Who becomes leader, and who hears of it."""

    def __init__(self, quorum: Quorum, leaders: LeaderTracking) -> None:
        self._quorum = quorum
        self._leaders = leaders

    # Vote

    def receive_vote(self, request: VoteRequest, token: object) -> None:
        quorum = self._quorum
        refusal = self._leaders.refuse(request.cluster_id, request.topics)
        if refusal is not None:
            quorum.answer(token, VoteResponse(error_code=refusal))
            return
        partition = request.topics[0].partitions[0]
        error, is_granted = self._vote(request, partition)
        quorum.answer(token, messages.vote_response(error, quorum.leader_view, is_granted))

    def _vote(self, request: VoteRequest, partition: Any) -> tuple[ErrorCode, bool]:
        quorum = self._quorum
        epoch, last_epoch = partition.replica_epoch, partition.last_offset_epoch
        # A log holds nothing of an epoch that only begins with this election.
        is_impossible = last_epoch > epoch if partition.pre_vote else last_epoch >= epoch
        if is_impossible or last_epoch < 0 or partition.last_offset < 0:
            return ErrorCode.INVALID_REQUEST, False
        if error := self._leaders.refuse_voter_request(partition.replica_id, epoch):
            return error, False
        if epoch > quorum.epoch:
            quorum.become_unattached(epoch)
        if not self._is_meant(request.voter_id, partition.voter_directory_id):
            return ErrorCode.INVALID_VOTER_KEY, False
        asker = ReplicaKey(partition.replica_id, partition.replica_directory_id)
        own_end = log_end(quorum.log)
        is_up_to_date = (last_epoch, partition.last_offset) >= (own_end.epoch, own_end.offset)
        if partition.pre_vote:
            return ErrorCode.NONE, is_up_to_date and self._may_pre_vote()
        return ErrorCode.NONE, self._grant(asker, is_up_to_date)

    def _may_pre_vote(self) -> bool:
        state = self._quorum.state
        if isinstance(state, Follower):
            # An observer follows on when its leader is silent; it may have become a voter by a
            # record that it does not have yet.
            return not state.has_fetched or state.fetch_deadline_ms <= self._quorum.now_ms
        return not isinstance(state, Leader)

    def _grant(self, asker: ReplicaKey, is_up_to_date: bool) -> bool:
        state = self._quorum.state
        if not isinstance(state, (Unattached, Prospective)):
            return False
        if state.voted is not None:
            return state.voted.id == asker.id and state.voted.directory_id in (
                ZERO_UUID,
                asker.directory_id,
            )
        if state.leader_id is not None or not is_up_to_date:
            return False
        self._quorum.vote_for(asker)
        return True

    def _is_meant(self, voter_id: int, directory_id: bytes) -> bool:
        """A request that was sent to another voter, or to a disk that is gone, is not for this
        one."""
        key = self._quorum.key
        if voter_id < 0:
            return True
        return voter_id == key.id and directory_id in (ZERO_UUID, key.directory_id)

    def vote_answered(self, in_flight: InFlight, response: VoteResponse) -> bool:
        quorum = self._quorum
        state = quorum.state
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(state, Prospective):
            # An older voter does not know pre-votes: then they cannot be waited for.
            quorum.become_candidate()
            return True
        partition = self._leaders.partition_of(response.error_code, response.topics)
        if partition is None:
            return False
        endpoints = messages.address_in(response, partition.leader_id, quorum.local.listener)
        handled = self._leaders.heard(
            partition.error_code, partition.leader_id, partition.leader_epoch, endpoints
        )
        if handled is not None:
            return handled
        if partition.error_code:
            return False
        if isinstance(state, (Prospective, Candidate)) and quorum.state is state:
            state.tally.record(in_flight.destination.node_id, is_granted=partition.vote_granted)
            if isinstance(state, Prospective) and state.tally.is_lost:
                self._give_up(state)
        return True

    # BeginQuorumEpoch

    def receive_begin_epoch(self, request: BeginQuorumEpochRequest, token: object) -> None:
        quorum = self._quorum
        refusal = self._leaders.refuse(request.cluster_id, request.topics)
        if refusal is not None:
            quorum.answer(token, BeginQuorumEpochResponse(error_code=refusal))
            return
        partition = request.topics[0].partitions[0]
        error = self._leaders.refuse_voter_request(partition.leader_id, partition.leader_epoch)
        if not error:
            endpoints = _endpoints(request.leader_endpoints)
            self._leaders.transition(partition.leader_id, partition.leader_epoch, endpoints)
            if not self._is_meant(request.voter_id, partition.voter_directory_id):
                error = ErrorCode.INVALID_VOTER_KEY
        quorum.answer(token, messages.begin_epoch_response(error, quorum.leader_view))

    def begin_epoch_answered(self, in_flight: InFlight, response: BeginQuorumEpochResponse) -> bool:
        return self._epoch_answered(response) is not False

    def _epoch_answered(
        self, response: BeginQuorumEpochResponse | EndQuorumEpochResponse
    ) -> bool | None:
        """None when there was nothing but good news."""
        partition = self._leaders.partition_of(response.error_code, response.topics)
        if partition is None:
            return False
        endpoints = messages.address_in(response, partition.leader_id, self._quorum.local.listener)
        handled = self._leaders.heard(
            partition.error_code, partition.leader_id, partition.leader_epoch, endpoints
        )
        if handled is not None:
            return handled
        return False if partition.error_code else None

    # EndQuorumEpoch

    def receive_end_epoch(self, request: EndQuorumEpochRequest, token: object) -> None:
        quorum = self._quorum
        refusal = self._leaders.refuse(request.cluster_id, request.topics)
        if refusal is not None:
            quorum.answer(token, EndQuorumEpochResponse(error_code=refusal))
            return
        partition = request.topics[0].partitions[0]
        leader_id = partition.leader_id
        error = self._leaders.refuse_voter_request(leader_id, partition.leader_epoch)
        if not error:
            endpoints = _endpoints(request.leader_endpoints)
            self._leaders.transition(leader_id, partition.leader_epoch, endpoints)
            state = quorum.state
            if isinstance(state, Follower) and state.leader_id == leader_id:
                preferred = [
                    ReplicaKey(each.candidate_id, each.candidate_directory_id)
                    for each in partition.preferred_candidates
                ] or [ReplicaKey(each) for each in partition.preferred_successors]
                state.fetch_deadline_ms = quorum.now_ms + self._succession_delay_ms(preferred)
                # Its leader is gone by its own word: others may be elected.
                state.has_fetched = False
        quorum.answer(token, messages.end_epoch_response(error, quorum.leader_view))

    def _succession_delay_ms(self, preferred: list[ReplicaKey]) -> int:
        """The first to be preferred begins at once, each one after it later, so that they do not
        split the vote."""
        key = self._quorum.key
        longest_ms = self._quorum.settings.election_backoff_max_ms
        for position, candidate in enumerate(preferred):
            if candidate.id == key.id and candidate.directory_id in (ZERO_UUID, key.directory_id):
                if position == 0:
                    return 0
                return min(longest_ms, (longest_ms >> (len(preferred) - 1)) << (position - 1))
        return longest_ms

    def end_epoch_answered(self, in_flight: InFlight, response: EndQuorumEpochResponse) -> bool:
        outcome = self._epoch_answered(response)
        state = self._quorum.state
        if outcome is None and isinstance(state, Resigned):
            state.unacknowledged.discard(in_flight.destination.node_id)
        return outcome is not False

    # Time

    def poll_unattached(self, state: Unattached) -> bool:
        if not self._quorum.is_electable:
            return False
        if state.election_deadline_ms <= self._quorum.now_ms:
            self._quorum.become_prospective()
            return True
        self._quorum.wake_at(state.election_deadline_ms)
        return False

    def poll_prospective(self, state: Prospective) -> bool:
        quorum = self._quorum
        if not quorum.is_electable:
            self._give_up(state)
            return True
        if state.tally.is_won:
            quorum.become_candidate()
            return True
        if state.election_deadline_ms <= quorum.now_ms:
            self._give_up(state)
            return True
        self._ask_for_votes(state, is_pre_vote=True)
        return False

    def poll_candidate(self, state: Candidate) -> bool:
        quorum = self._quorum
        if state.tally.is_won:
            quorum.become_leader()
            return True
        if state.election_deadline_ms <= quorum.now_ms:
            quorum.become_prospective()
            return True
        self._ask_for_votes(state, is_pre_vote=False)
        return False

    def _ask_for_votes(self, state: Prospective | Candidate, *, is_pre_vote: bool) -> None:
        quorum = self._quorum
        quorum.wake_at(state.election_deadline_ms)
        outstanding = state.tally.outstanding
        if not outstanding or state.tally.is_lost:
            return
        end = log_end(quorum.log)
        for voter in outstanding:
            quorum.send_when_ready(
                voter.key.id,
                voter.endpoints,
                lambda key=voter.key: messages.vote_request(  # type: ignore[misc]
                    quorum.local.cluster_id, state.epoch, quorum.key, key, end, is_pre_vote
                ),
            )

    def _give_up(self, state: Prospective) -> None:
        """Back to the leader that was lost, or to waiting for one."""
        quorum = self._quorum
        leader_id, endpoints = state.leader_id, state.leader_endpoints
        if leader_id is not None and leader_id != quorum.key.id and endpoints:
            quorum.become_follower(state.epoch, leader_id, endpoints)
        else:
            quorum.become_unattached(state.epoch, leader_id)

    def poll_leader(self, state: Leader) -> bool:
        quorum = self._quorum
        if not state.has_begun:
            quorum.begin_epoch(state)
            return True
        is_deserted = (
            state.has_quorum_deadline() and state.check_quorum_deadline_ms <= quorum.now_ms
        )
        if state.is_resigning or is_deserted:
            quorum.resign()
            return True
        if state.has_quorum_deadline():
            quorum.wake_at(state.check_quorum_deadline_ms)
        if state.begin_epoch_due_ms <= quorum.now_ms:
            state.begin_epoch_due_ms = quorum.now_ms + quorum.settings.begin_epoch_interval_ms
            for key in state.silent_voters(quorum.now_ms):
                quorum.send_when_ready(
                    key.id,
                    quorum.voters.endpoints(key.id),
                    lambda key=key: messages.begin_epoch_request(  # type: ignore[misc]
                        quorum.local.cluster_id,
                        state.epoch,
                        quorum.key.id,
                        key,
                        quorum.local.endpoints,
                    ),
                )
        quorum.wake_at(state.begin_epoch_due_ms)
        return False

    def poll_resigned(self, state: Resigned) -> bool:
        quorum = self._quorum
        if state.election_deadline_ms <= quorum.now_ms:
            quorum.become_unattached(state.epoch + 1)
            return True
        quorum.wake_at(state.election_deadline_ms)
        for voter_id in sorted(state.unacknowledged):
            quorum.send_when_ready(
                voter_id,
                quorum.voters.endpoints(voter_id),
                lambda: messages.end_epoch_request(
                    quorum.local.cluster_id,
                    state.epoch,
                    quorum.key.id,
                    state.preferred,
                    quorum.local.endpoints,
                ),
            )
        return False


def _endpoints(listed: Any) -> Endpoints:
    return tuple(Endpoint(each.name, each.host, each.port) for each in listed)
