"""The role of a replica, what it must not forget, and how it passes from role to role.

Inputs and time come from `Replica`; the parts that know a protocol (elections, fetching, snapshots,
membership) act through this object: they ask for transitions, append, send and answer.

Three things reach the disk, each with its own rule:

    quorum-state   a transition that changes it marks it as not persisted; `Replica` holds back
                   everything that the same input has caused until it is on disk
    log            `append_*` reach the page cache and ask for a sync; `synced_offset` is what is on
                   disk, and nothing else is counted or reported
    snapshots      are installed by the caller while the replica stands still
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tidelog.protocol.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    MetadataLogControl,
    encode_controls,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import Buffer
from tidelog.protocol.schema import Message
from tidelog.raft.connections import Connections
from tidelog.raft.leader_state import Leader, WaitingProposal
from tidelog.raft.local_node import LocalNode
from tidelog.raft.messages import NO_LEADER, LeaderView
from tidelog.raft.outputs import (
    Answer,
    HighWatermarkMoved,
    LeaderChanged,
    Output,
    ProposalEnded,
    Send,
    Sync,
)
from tidelog.raft.quorum_state_file import ElectionState
from tidelog.raft.raft_log import RaftLog, log_end
from tidelog.raft.settings import QuorumSettings
from tidelog.raft.states import (
    NEVER_MS,
    Candidate,
    Follower,
    Prospective,
    Resigned,
    State,
    Unattached,
)
from tidelog.raft.vote_tally import VoteTally
from tidelog.raft.voter_history import BEFORE_LOG, VoterHistory
from tidelog.raft.voters import (
    RECONFIGURATION_VERSION,
    Destination,
    Endpoint,
    Endpoints,
    ReplicaKey,
    VoterNode,
    VoterSet,
)


class NotAppended(ApiError):
    """A proposal was refused before it got into any log: it may be made again. One that fails
    otherwise may still be committed by a leader to come."""


class Quorum:
    """The state of one replica."""

    def __init__(
        self,
        local: LocalNode,
        log: RaftLog,
        settings: QuorumSettings,
        random: Random,
        wall_ms: Callable[[], int],
        election: ElectionState,
        now_ms: int,
    ) -> None:
        self.local = local
        self.key = local.key
        self.log = log
        self.settings = settings
        self.random = random
        self.wall_ms = wall_ms
        self.now_ms = now_ms
        self.deadline_ms = NEVER_MS
        self.high_watermark: int | None = None
        """Everything below is committed. It does not go back in the life of the replica."""
        self.history = VoterHistory(local.static_voters)
        self.history.load(log)
        self.connections = Connections(settings, random)
        self.outputs: list[Output] = []
        # The other parts hear of what happens to a leader.
        self.when_leadership_ended: list[Callable[[Leader], None]] = []
        self.when_committed: list[Callable[[Leader], None]] = []
        self.when_appended: list[Callable[[Leader], None]] = []
        # What was loaded may be in the page cache only: another process may have left it there.
        self.synced_offset = log.start_offset
        self._is_syncing = False
        self.is_persisted = False
        self._granting_voters: list[int] = []
        self._told = LeaderChanged(None, 0)
        self.state: State = self._initial_state(election)
        # One that comes back into the same epoch has a leader from the start.
        self.tell_leader()
        self.request_sync()

    def _initial_state(self, election: ElectionState) -> State:
        end = log_end(self.log)
        epoch, leader_id, voted = election
        election_deadline_ms = self.now_ms + self.random_election_timeout_ms()
        if not self.is_electable:
            election_deadline_ms = NEVER_MS
        if epoch < end.epoch:
            return Unattached(end.epoch, None, None, election_deadline_ms)
        if leader_id == self.key.id:
            return self._resigned(epoch, [])
        if voted is not None and VoterNode(voted, ()).matches(self.key) and self.is_electable:
            return Candidate(epoch, voted, self._tally(), election_deadline_ms)
        if leader_id is not None:
            endpoints = self.voters.endpoints(leader_id)
            if endpoints:
                return self._follower(epoch, leader_id, endpoints, voted)
        return Unattached(epoch, leader_id, voted, election_deadline_ms)

    # What is known

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        return self.history.voters.is_voter(self.key)

    @property
    def is_electable(self) -> bool:
        return self.history.is_electable(self.key, self.high_watermark)

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def leader_id(self) -> int | None:
        state = self.state
        return None if isinstance(state, Candidate) else state.leader_id

    @property
    def leader_endpoints(self) -> Endpoints:
        state = self.state
        if isinstance(state, (Leader, Resigned)):
            return self.local.endpoints
        return state.leader_endpoints if isinstance(state, (Follower, Prospective)) else ()

    @property
    def leader_view(self) -> LeaderView:
        leader_id = self.leader_id
        return LeaderView(
            NO_LEADER if leader_id is None else leader_id,
            self.state.epoch,
            self.address(self.leader_endpoints),
        )

    def servers(self) -> Iterator[tuple[str, int]]:
        """Who may know who leads: those of the configuration, and the voters that are known now,
        without this node itself."""
        own = {(each.host, each.port) for each in self.local.endpoints}
        yield from (each for each in self.local.bootstrap if each not in own)
        for voter in self.history.voters:
            address = self.address(voter.endpoints)
            if address is not None and (address.host, address.port) not in own:
                yield address.host, address.port

    def address(self, endpoints: Endpoints) -> Endpoint | None:
        """The one that voters use among themselves."""
        for each in endpoints:
            if each.name == self.local.listener:
                return each
        return None

    @property
    def election(self) -> ElectionState:
        """What must not be forgotten."""
        state = self.state
        if isinstance(state, (Leader, Resigned)):
            return ElectionState(state.epoch, state.leader_id, None)
        return ElectionState(state.epoch, self.leader_id, state.voted)

    def random_election_timeout_ms(self) -> int:
        timeout_ms = self.settings.election_timeout_ms
        return timeout_ms + self.random.randrange(timeout_ms)

    def wake_at(self, time_ms: int) -> None:
        """Something is due then, if nothing happens before."""
        if time_ms < self.deadline_ms:
            self.deadline_ms = time_ms

    # Sending and answering

    def send(self, destination: Destination, request: Message) -> None:
        correlation = self.connections.sent(destination, request, self.now_ms)
        self.outputs.append(Send(correlation, destination, request))

    def send_when_ready(
        self, node_id: int, endpoints: Endpoints, make: Callable[[], Message]
    ) -> bool:
        """Send unless a request to that node is under way or it pauses; says whether it went."""
        address = self.address(endpoints)
        if address is None:
            return False
        is_ready = self.connections.is_ready(node_id, self.now_ms)
        if is_ready:
            self.send(Destination(node_id, address.host, address.port), make())
        self.wake_at(self.connections.ready_at(node_id))
        return is_ready

    def answer(self, token: object, response: Message) -> None:
        self.outputs.append(Answer(token, response))

    # Transitions

    def become_unattached(self, epoch: int, leader_id: int | None = None) -> None:
        before = self.state
        assert epoch > before.epoch or (epoch == before.epoch and isinstance(before, Prospective))
        if not self.is_electable:
            deadline_ms = NEVER_MS
        elif isinstance(before, Prospective) and before.tally.is_lost:
            deadline_ms = self.now_ms + self.random_election_timeout_ms()
        elif isinstance(before, (Unattached, Prospective, Candidate, Resigned)):
            # Hearing of an epoch is no reason to wait longer.
            deadline_ms = before.election_deadline_ms
        else:
            deadline_ms = NEVER_MS
        if deadline_ms == NEVER_MS and self.is_electable:
            deadline_ms = self.now_ms + self.random_election_timeout_ms()
        voted = self.election.voted if epoch == before.epoch else None
        self._enter(Unattached(epoch, leader_id, voted, deadline_ms))

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Give the one vote of this epoch away, and give the candidate time to make use of it."""
        state = self.state
        assert isinstance(state, (Unattached, Prospective))
        assert state.voted is None
        assert state.leader_id is None
        assert candidate.id != self.key.id
        deadline_ms = NEVER_MS
        if self.is_electable:
            deadline_ms = self.now_ms + self.random_election_timeout_ms()
        if isinstance(state, Unattached):
            self._enter(Unattached(state.epoch, None, candidate, deadline_ms))
        else:
            self._enter(
                Prospective(
                    state.epoch,
                    None,
                    state.leader_endpoints,
                    candidate,
                    self._tally(),
                    deadline_ms,
                )
            )

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints) -> None:
        assert leader_id != self.key.id, "nobody follows itself"
        assert epoch >= self.epoch
        assert epoch > self.epoch or not isinstance(self.state, (Leader, Resigned, Follower))
        voted = self.election.voted if epoch == self.epoch else None
        self._enter(self._follower(epoch, leader_id, endpoints, voted))

    def become_prospective(self) -> None:
        assert self.is_electable, "only voters are elected"
        assert not isinstance(self.state, (Leader, Prospective))
        state = self.state
        self._enter(
            Prospective(
                state.epoch,
                self.leader_id,
                self.leader_endpoints,
                self.election.voted,
                self._tally(),
                self.now_ms + self.random_election_timeout_ms(),
            )
        )

    def become_candidate(self) -> None:
        assert self.is_electable, "only voters are elected"
        assert isinstance(self.state, Prospective)
        self._enter(
            Candidate(
                self.state.epoch + 1,
                self.key,
                self._tally(),
                self.now_ms + self.random_election_timeout_ms(),
            )
        )

    def become_leader(self) -> None:
        state = self.state
        assert isinstance(state, Candidate)
        assert state.tally.is_won
        assert self.is_persisted, "its own vote counts once it is on disk"
        leader = Leader(
            self.key,
            self.local.endpoints,
            state.epoch,
            self.log.end_offset,
            self.voters,
            self.settings,
            self.now_ms,
        )
        self._granting_voters = sorted(state.tally.granted)
        self._enter(leader)
        if self.history.kraft_version < RECONFIGURATION_VERSION:
            leader.volatile_voters = self.voters.with_voter(self.local.as_voter)

    def begin_epoch(self, leader: Leader) -> None:
        """Write the first record of the epoch, or resign when the disk does not take it."""
        assert self.is_persisted
        assert leader.epoch_start_offset == self.log.end_offset
        leader.has_begun = True
        try:
            self.append_controls(self._first_records())
        except ApiError:
            self.resign()
            return
        if leader.local_synced(self.synced_offset):
            self.leader_high_watermark_moved(leader)

    def _first_records(self) -> list[MetadataLogControl]:
        """Every leader begins its epoch with a record, for only with a record of its own epoch on
        top it may commit what is below."""
        records: list[MetadataLogControl] = [
            LeaderChangeMessage(
                version=0,
                leader_id=self.key.id,
                voters=[LeaderChangeVoter(voter_id=voter_id) for voter_id in self.voters.ids],
                granting_voters=[
                    LeaderChangeVoter(voter_id=voter_id) for voter_id in self._granting_voters
                ],
            )
        ]
        history = self.history
        is_record = history.kraft_version >= RECONFIGURATION_VERSION
        if is_record and (
            history.voters_offset == BEFORE_LOG or self.voters.needs_update(self.local.as_voter)
        ):
            # What only the bootstrap snapshots say becomes part of the log; and the leader is the
            # one voter that cannot tell the leader its endpoints.
            records.append(KRaftVersionRecord(version=0, kraft_version=history.kraft_version))
            records.append(self.voters.with_voter(self.local.as_voter).to_record())
        return records

    def resign(self) -> None:
        """Stop leading, for good in this epoch. It is no new fact: a leader that restarts has
        resigned too."""
        leader = self.state
        assert isinstance(leader, Leader)
        self._enter(self._resigned(leader.epoch, leader.followers_by_progress()))

    def _let_others_lead(self) -> None:
        """A leader whose disk is full can decide nothing more: nobody would be fenced and no
        replica set shrunk. Alone it stays and waits for room."""
        if not self.voters.is_only_voter(self.key):
            self.resign()

    def _follower(
        self, epoch: int, leader_id: int, endpoints: Endpoints, voted: ReplicaKey | None
    ) -> Follower:
        timeout_ms = self.settings.fetch_timeout_ms
        return Follower(
            epoch,
            leader_id,
            endpoints,
            voted,
            self.now_ms + timeout_ms,
            self.now_ms + timeout_ms,
        )

    def _resigned(self, epoch: int, preferred: list[ReplicaKey]) -> Resigned:
        return Resigned(
            epoch,
            self.key.id,
            {node.key.id for node in self.voters if node.key.id != self.key.id},
            preferred,
            self.now_ms + self.random_election_timeout_ms(),
        )

    def _tally(self) -> VoteTally:
        return VoteTally(self.voters, self.key)

    def _enter(self, state: State) -> None:
        before, election_before = self.state, self.election
        assert state.epoch >= before.epoch, "epochs never go back"
        self.state = state
        assert (
            election_before.voted in (None, self.election.voted)
            or state.epoch > before.epoch
            or isinstance(state, Leader)
        ), "a vote is never taken back"
        if self.election != election_before:
            self.is_persisted = False
        self.connections.reset_all()
        if isinstance(before, Leader):
            self._end_leadership(before)
        self.tell_leader()

    def _end_leadership(self, leader: Leader) -> None:
        """Everybody who waits for this leader hears that it will not be."""
        for hear in self.when_leadership_ended:
            hear(leader)
        error = ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"node {self.key.id} has stopped leading epoch {leader.epoch} of the quorum before the"
            " records were committed: a later leader may still commit them",
        )
        for proposal in leader.proposals:
            self.outputs.append(ProposalEnded(proposal.token, proposal.end_offset, error))
        leader.proposals.clear()

    def tell_leader(self) -> None:
        """The caller hears who leads, and each change once. A new leader does when it has
        committed a record of its epoch."""
        state = self.state
        leader_id = self.leader_id
        leads = isinstance(state, Leader) and state.high_watermark is not None
        if leader_id == self.key.id and not leads:
            # It begins, or has led this epoch before: resigned, or in another life.
            leader_id = None
        now = LeaderChanged(leader_id, state.epoch)
        if now != self._told:
            self._told = now
            self.outputs.append(now)

    # The log

    def append_controls(self, records: list[MetadataLogControl]) -> int:
        """Append control records as the leader, one batch of them; returns the offset after them.
        Raises ApiError."""
        return self.append_as_leader(encode_controls(records, timestamp_ms=self.wall_ms()))

    def append_as_leader(self, batches: bytearray) -> int:
        """Raises ApiError when the disk does not take them; nothing has changed then."""
        leader = self.state
        assert isinstance(leader, Leader)
        end_offset = self.log.append_as_leader(batches, leader.epoch)
        voters_before = self.voters
        self.history.append(batches)
        if self.voters is not voters_before:
            leader.take_voters(self.voters, self.now_ms)
        self.request_sync()
        for hear in self.when_appended:
            hear(leader)
        return end_offset

    def append_as_follower(self, batches: Buffer) -> None:
        """Raises ApiError; nothing has changed then."""
        assert isinstance(self.state, Follower), "only followers take what others have appended"
        self.log.append_as_follower(batches)
        self.history.append(batches)
        self.request_sync()

    def truncate_to(self, offset: int) -> None:
        assert isinstance(self.state, Follower), "only followers truncate"
        assert offset >= (self.high_watermark or 0), (
            f"node {self.key.id} is to truncate its log to {offset}, below the high watermark "
            f"{self.high_watermark}"
        )
        assert offset >= self.log.start_offset, "what a snapshot holds is committed"
        assert self.is_synced, "no sync is under way: a follower fetches only after it"
        self.log.truncate_to(offset)
        self.history.truncate_to(offset)
        self.synced_offset = self.log.end_offset

    def restarted_at(self, offset: int) -> None:
        """The log was replaced by a snapshot that ends there."""
        assert self.log.start_offset == self.log.end_offset == offset
        self.history.load(self.log)
        self.synced_offset = offset

    def request_sync(self) -> None:
        if not self._is_syncing and self.synced_offset < self.log.end_offset:
            self._is_syncing = True
            self.outputs.append(Sync(self.log.end_offset))

    def synced(self, sync: Sync) -> None:
        self._is_syncing = False
        assert self.synced_offset < sync.end_offset <= self.log.end_offset
        self.synced_offset = sync.end_offset
        self.request_sync()
        leader = self.state
        if isinstance(leader, Leader) and leader.local_synced(self.synced_offset):
            self.leader_high_watermark_moved(leader)

    @property
    def is_synced(self) -> bool:
        return self.synced_offset == self.log.end_offset

    # The high watermark

    def leader_high_watermark_moved(self, leader: Leader) -> None:
        high_watermark = leader.high_watermark
        assert high_watermark is not None
        self._raise_high_watermark(high_watermark)
        self.tell_leader()
        while leader.proposals and leader.proposals[0].end_offset <= high_watermark:
            proposal = leader.proposals.popleft()
            self.outputs.append(ProposalEnded(proposal.token, proposal.end_offset, None))
        for hear in self.when_committed:
            hear(leader)

    def follower_high_watermark(self, leader_high_watermark: int) -> None:
        """What the leader says is committed, as far as the own log goes."""
        self._raise_high_watermark(min(leader_high_watermark, self.log.end_offset))

    def _raise_high_watermark(self, offset: int) -> None:
        before = self.high_watermark
        assert before is None or offset >= before, (
            f"node {self.key.id}: the high watermark goes back from {before} to {offset}"
        )
        if offset != before:
            self.high_watermark = offset
            self.outputs.append(HighWatermarkMoved(offset))

    # Proposals

    def propose(self, batches: bytearray, token: object) -> None:
        leader = self.state
        try:
            if not isinstance(leader, Leader) or leader.is_resigning:
                raise ApiError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"node {self.key.id} does not lead the quorum; node {self.leader_id} does",
                )
            end_offset = self.append_as_leader(batches)
        except ApiError as error:
            refusal = NotAppended(error.code, error.message)
            self.outputs.append(ProposalEnded(token, -1, refusal))
            if isinstance(leader, Leader) and error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._let_others_lead()
            return
        leader.proposals.append(WaitingProposal(end_offset, token))
