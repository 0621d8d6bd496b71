"""One replica of the metadata quorum: KRaft as Kafka 4 has it, without I/O.

Inputs go in by calls, outputs come out by `take_outputs`, and time is an argument:

    receive(request)      a request of another node, or of a tool
    answered,             how a request that was sent has ended
    request_failed
    tick                  time has passed; `next_deadline_ms` says when the next one is needed
    propose               records for the log; a ProposalEnded comes for each, once
    persisted, synced,    the disk has done what an output asked for
    snapshot_installed

KRaft is Raft that pulls. Followers fetch from the leader, so a fetch is at once a heartbeat, an
acknowledgement of what is on disk, and the comparison of two logs. Elections have a pre-vote;
voters are records of the log, and change one at a time; a leader that a majority does not fetch
from resigns. The parts:

    quorum.py              role, epoch, vote, log, high watermark; the transitions between roles
    leader_tracking.py     what the word of others means for the own epoch
    elections.py           Vote, BeginQuorumEpoch, EndQuorumEpoch
    fetching.py            Fetch
    snapshot_fetching.py   FetchSnapshot
    membership.py          AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, kraft.version
    describing.py          DescribeQuorum

What must not be forgotten is on disk before anybody hears of it. An input that changes the epoch or
the vote yields a Persist, and everything else that it caused is held back until `persisted`. Inputs
that come meanwhile wait, in their order: the replica stands still, as a process does that waits for
its disk. The same goes for a snapshot that is being installed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from tidelog.protocol.apis.add_raft_voter import AddRaftVoterRequest
from tidelog.protocol.apis.api_versions import ApiVersionsResponse
from tidelog.protocol.apis.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from tidelog.protocol.apis.describe_quorum import DescribeQuorumRequest
from tidelog.protocol.apis.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from tidelog.protocol.apis.fetch import FetchRequest, FetchResponse
from tidelog.protocol.apis.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tidelog.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from tidelog.protocol.apis.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from tidelog.protocol.apis.vote import VoteRequest, VoteResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.registry import response_class
from tidelog.protocol.schema import Message
from tidelog.raft.connections import InFlight
from tidelog.raft.describing import describe
from tidelog.raft.elections import Elections
from tidelog.raft.fetching import Fetching
from tidelog.raft.leader_state import Leader
from tidelog.raft.leader_tracking import LeaderTracking
from tidelog.raft.local_node import LocalNode
from tidelog.raft.membership import Membership
from tidelog.raft.outputs import InstallSnapshot, Output, Persist, Sync
from tidelog.raft.quorum import Quorum
from tidelog.raft.quorum_state_file import ElectionState
from tidelog.raft.raft_log import RaftLog, SnapshotId
from tidelog.raft.settings import QuorumSettings
from tidelog.raft.snapshot_fetching import SnapshotFetching
from tidelog.raft.states import (
    NEVER_MS,
    Candidate,
    Follower,
    Prospective,
    Resigned,
    Unattached,
)


class Replica:
    """A replica that begins with what its disk holds: the log and `quorum-state`.

    Take its outputs after it was made, too. `now_ms` is of any clock that does not go back.
    """

    def __init__(
        self,
        local: LocalNode,
        log: RaftLog,
        settings: QuorumSettings,
        random: Random,
        election: ElectionState,
        now_ms: int,
        wall_ms: Callable[[], int],
    ) -> None:
        self.quorum = quorum = Quorum(local, log, settings, random, wall_ms, election, now_ms)
        self._leaders = leaders = LeaderTracking(quorum)
        self._elections = Elections(quorum, leaders)
        self._fetching = Fetching(quorum, leaders)
        self._snapshots = SnapshotFetching(quorum, leaders)
        self._membership = Membership(quorum, leaders)
        self._ready: list[Output] = []
        self._held: list[Output] = []  # until the disk has what they depend on
        self._is_still = False
        self._waiting: deque[Callable[[], None]] = deque()  # inputs, while it stands still
        self._receivers: dict[type[Message], Callable[[Any, object], None]] = {
            FetchRequest: self._fetching.receive,
            VoteRequest: self._elections.receive_vote,
            BeginQuorumEpochRequest: self._elections.receive_begin_epoch,
            EndQuorumEpochRequest: self._elections.receive_end_epoch,
            FetchSnapshotRequest: self._snapshots.receive,
            DescribeQuorumRequest: self._describe,
            AddRaftVoterRequest: self._membership.receive_add,
            RemoveRaftVoterRequest: self._membership.receive_remove,
            UpdateRaftVoterRequest: self._membership.receive_update,
        }
        self._answer_takers: dict[type[Message], Callable[[InFlight, Any], bool]] = {
            FetchResponse: self._fetching.answered,
            VoteResponse: self._elections.vote_answered,
            BeginQuorumEpochResponse: self._elections.begin_epoch_answered,
            EndQuorumEpochResponse: self._elections.end_epoch_answered,
            FetchSnapshotResponse: self._snapshots.answered,
            UpdateRaftVoterResponse: self._membership.update_answered,
            ApiVersionsResponse: self._membership.versions_answered,
        }
        if quorum.voters.is_only_voter(quorum.key) and isinstance(
            quorum.state, (Unattached, Follower, Resigned)
        ):
            # There is nobody to wait for.
            quorum.become_prospective()
        self._finish()

    # What a caller may want to know

    @property
    def is_leader(self) -> bool:
        return isinstance(self.quorum.state, Leader)

    @property
    def epoch(self) -> int:
        return self.quorum.epoch

    def is_in_touch(self, now_ms: int) -> bool:
        """Whether the quorum works as far as this replica sees it. A leader is known for longer:
        its epoch goes on until there is another one."""
        state = self.quorum.state
        if isinstance(state, Leader):
            return state.hears_majority(now_ms)
        return (
            isinstance(state, Follower) and state.has_fetched and now_ms < state.fetch_deadline_ms
        )

    @property
    def leader_id(self) -> int | None:
        return self.quorum.leader_id

    @property
    def high_watermark(self) -> int | None:
        return self.quorum.high_watermark

    @property
    def next_deadline_ms(self) -> int:
        """When to `tick` at the latest."""
        return NEVER_MS if self._is_still else self.quorum.deadline_ms

    def take_outputs(self) -> list[Output]:
        outputs, self._ready = self._ready, []
        return outputs

    # Inputs

    def receive(self, request: Message, token: object, now_ms: int) -> None:
        """A request; an Answer with this token comes now or later."""
        self._input(partial(self._receivers[type(request)], request, token), now_ms)

    def answered(self, correlation: int, node_id: int, response: Message, now_ms: int) -> None:
        """The response to what was sent to `node_id` with this correlation id."""
        self._input(partial(self._answered, correlation, node_id, response), now_ms)

    def request_failed(self, correlation: int, node_id: int, error: ErrorCode, now_ms: int) -> None:
        """There will be no response: the connection is lost, or the other side too old.

        BROKER_NOT_AVAILABLE says that the node's machine answers and nobody listens there: its
        process has ended. A leader that has gone so need not be waited for.
        """
        self._input(partial(self._failed, correlation, node_id, error), now_ms)

    def tick(self, now_ms: int) -> None:
        if not self._is_still:
            self._input(_nothing, now_ms)

    def propose(self, batches: bytearray, token: object, now_ms: int) -> None:
        """Record batches that count together; a ProposalEnded with this token says how it ends."""
        self._input(partial(self.quorum.propose, batches, token), now_ms)

    def synced(self, sync: Sync, now_ms: int) -> None:
        self._input(partial(self.quorum.synced, sync), now_ms)

    def resign(self, epoch: int, now_ms: int) -> None:
        """Stop leading `epoch`, and say who should come next."""
        self._input(partial(self._resign, epoch), now_ms)

    def snapshot_taken(self, snapshot_id: SnapshotId) -> None:
        """The caller has made a snapshot of its own, of committed state; it is on disk and
        listed."""
        assert snapshot_id.offset <= (self.quorum.high_watermark or 0)
        self.quorum.history.forget_before(snapshot_id.offset)

    def upgrade_kraft_version(self, kraft_version: int, now_ms: int) -> int:
        """Raise kraft.version; it is done when the log is committed up to the offset that is
        returned. Raises ApiError; also while the replica waits for its disk."""
        if self._is_still:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the replica waits for its disk")
        self.quorum.now_ms = max(now_ms, self.quorum.now_ms)
        try:
            return self._membership.upgrade(kraft_version)
        finally:
            self._finish()

    def persisted(self, now_ms: int) -> None:
        """The newest Persist is on disk."""
        assert self._is_still
        assert not self.quorum.is_persisted
        self.quorum.is_persisted = True
        self._go_on(_nothing, now_ms)

    def snapshot_installed(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        assert self._is_still
        self._go_on(partial(self._snapshots.installed, snapshot_id), now_ms)

    # How inputs are handled

    def _input(self, handle: Callable[[], None], now_ms: int) -> None:
        if self._is_still:
            self._waiting.append(handle)
            return
        self.quorum.now_ms = max(now_ms, self.quorum.now_ms)
        handle()
        self._finish()

    def _go_on(self, handle: Callable[[], None], now_ms: int) -> None:
        self._is_still = False
        held, self._held = self._held, []
        self._ready += held
        self._input(handle, now_ms)
        while self._waiting and not self._is_still:
            self._input(self._waiting.popleft(), now_ms)

    def _finish(self) -> None:
        """Do what the role demands now, and let the outputs go, or hold them back."""
        quorum = self.quorum
        has_changed = True
        while has_changed and quorum.is_persisted and self._snapshots.complete is None:
            quorum.deadline_ms = NEVER_MS
            has_changed = self._poll()
        caused, quorum.outputs = quorum.outputs, []
        if not quorum.is_persisted:
            election = quorum.election
            self._ready.append(Persist(election, quorum.history.kraft_version, quorum.voters.ids))
            self._held, self._is_still = caused, True
        else:
            self._ready += caused
        if self._snapshots.complete is not None:
            assert quorum.is_persisted
            self._ready.append(InstallSnapshot(self._snapshots.complete))
            self._is_still = True

    def _poll(self) -> bool:
        """Do what is due in the present role; True when the role has changed."""
        state = self.quorum.state
        if isinstance(state, Follower):
            self._membership.poll_follower(state)
            return self._fetching.poll_follower(state)
        if isinstance(state, Leader):
            self._membership.poll_leader(state)
            self._fetching.poll_leader(state)
            return self._elections.poll_leader(state)
        if isinstance(state, Unattached):
            if self._elections.poll_unattached(state):
                return True
            self._fetching.poll_unattached(state)
            return False
        if isinstance(state, Prospective):
            return self._elections.poll_prospective(state)
        if isinstance(state, Candidate):
            return self._elections.poll_candidate(state)
        return self._elections.poll_resigned(state)

    def _answered(self, correlation: int, node_id: int, response: Message) -> None:
        in_flight = self.quorum.connections.take(correlation, node_id)
        if in_flight is None:
            return
        if not self._answer_takers[type(response)](in_flight, response):
            self.quorum.connections.pause(node_id, self.quorum.now_ms)

    def _failed(self, correlation: int, node_id: int, error: ErrorCode) -> None:
        in_flight = self.quorum.connections.take(correlation, node_id)
        if in_flight is None:
            return
        # All of these responses have an error for the request as a whole.
        if error == ErrorCode.BROKER_NOT_AVAILABLE:
            self._fetching.leader_is_gone(node_id)
        made: Any = response_class(in_flight.request.API_KEY)
        response = made(error_code=error)
        is_fine = self._answer_takers[type(response)](in_flight, response)
        # One that is only too old for this request may be asked something else at once.
        if not is_fine or error != ErrorCode.UNSUPPORTED_VERSION:
            self.quorum.connections.pause(node_id, self.quorum.now_ms)

    def _describe(self, request: DescribeQuorumRequest, token: object) -> None:
        self.quorum.answer(token, describe(self.quorum, request))

    def _resign(self, epoch: int) -> None:
        state = self.quorum.state
        if isinstance(state, Leader) and state.epoch == epoch:
            state.is_resigning = True


def _nothing() -> None:
    pass
