"""One simulated node: a replica that lives and dies on its disk, and carries out its outputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.apis.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from tidelog.protocol.apis.fetch import FetchRequest
from tidelog.protocol.apis.vote import VoteRequest, VoteResponse
from tidelog.protocol.control_records import (
    KRaftVersionRecord,
    MetadataLogControl,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    encode_controls,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.schema import Message
from tidelog.raft.leader_state import Leader
from tidelog.raft.local_node import LocalNode
from tidelog.raft.outputs import (
    Answer,
    HighWatermarkMoved,
    InstallSnapshot,
    LeaderChanged,
    Output,
    Persist,
    ProposalEnded,
    Send,
    Sync,
)
from tidelog.raft.quorum_state_file import ElectionState
from tidelog.raft.raft_log import SnapshotId
from tidelog.raft.replica import Replica
from tidelog.raft.settings import QuorumSettings
from tidelog.raft.states import NEVER_MS
from tidelog.raft.voter_history import VoterHistory
from tidelog.raft.voters import KRAFT_VERSION, Endpoint, ReplicaKey, VoterSet
from tidelog.testing.simulation.consensus.disk import SimulatedDisk, StoredBatch
from tidelog.testing.simulation.consensus.options import Options

if TYPE_CHECKING:
    from tidelog.testing.simulation.consensus.cluster import Cluster

LISTENER = "CONTROLLER"
CLUSTER_ID = "simulated"
_PORT = 9093


def endpoints_of(node_id: int) -> tuple[Endpoint, ...]:
    return (Endpoint(LISTENER, f"node-{node_id}", _PORT),)


def snapshot_content(state: int | None, kraft_version: int, voters: VoterSet | None) -> bytes:
    """A snapshot in Kafka's layout; the state machine of the simulator is one number. None: the
    bootstrap snapshot, which has no records."""
    controls: list[MetadataLogControl] = [SnapshotHeaderRecord()]
    if kraft_version and voters is not None:
        controls.append(KRaftVersionRecord(kraft_version=kraft_version))
        controls.append(voters.to_record())
    content = encode_controls(controls, timestamp_ms=0)
    offset = len(controls)
    if state is not None:
        value = state.to_bytes(8, "big") * 20
        content += encode_batch([Record(offset, 0, None, value)], base_offset=offset)
        offset += 1
    content += encode_controls([SnapshotFooterRecord()], timestamp_ms=0, base_offset=offset)
    return bytes(content)


class Origin(NamedTuple):
    """Where a request came from: the token that a replica answers to."""

    node: SimulatedNode
    life: int
    correlation: int
    node_id: int  # as the sender addressed it
    request: Message
    version: int


class SimulatedNode:
    """A machine. `replica` is None while it is down; `key` changes with its disk."""

    def __init__(
        self,
        cluster: Cluster,
        node_id: int,
        directory_id: bytes,
        static_voters: VoterSet,
        rate: float,
        random: Random,
    ) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.key = ReplicaKey(node_id, directory_id)
        self.endpoints = endpoints_of(node_id)
        self.disk = self._new_disk()
        self.replica: Replica | None = None
        self.life = 0
        self.is_cut_off = False
        self.applied_offset = 0
        self._static_voters = static_voters
        self._rate = rate
        self._clock_offset_ms = random.randrange(1_000)
        self._random = random
        self._tick_us = -1
        self._is_paused = False
        self._backlog: list[Callable[[], None]] = []
        self._led_epoch = -1
        self._seen_epoch = 0
        self._voters_offset: int | None = None

    def _new_disk(self) -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.on_append = self.cluster.checker.appended
        disk.on_truncate = self.cluster.checker.truncated
        return disk

    # Life and death

    def start(self) -> None:
        cluster = self.cluster
        disk = self.disk
        disk.open()
        self.life += 1
        self._tick_us = -1
        self._is_paused = False
        self._backlog.clear()
        self._seen_epoch = disk.election.epoch
        local = LocalNode(
            self.key,
            self.endpoints,
            LISTENER,
            CLUSTER_ID,
            cluster.addresses,
            self._static_voters,
        )
        newest = disk.newest_snapshot_id
        self.applied_offset = 0 if newest is None else newest.offset
        self.replica = Replica(
            local,
            disk,
            cluster.settings,
            self._random,
            disk.visible_election,
            self.now_ms(),
            _wall_ms,
        )
        cluster.trace(self.node_id, f"starts, life {self.life}, log ends at {disk.end_offset}")
        self._carry_out()

    def stop(self, *, with_power: bool) -> None:
        if self.replica is None:
            return
        self.replica = None
        self.cluster.died(self)
        if with_power:
            self.disk.lose_process(self._random)
        else:
            self.disk.lose_power(self._random)
        self.disk.is_full = False
        self.cluster.trace(
            self.node_id,
            f"{'is killed' if with_power else 'loses power'}, log ends at {self.disk.end_offset}",
        )

    def replace_disk(self, directory_id: bytes) -> None:
        """Everything is gone, and the node knows that it is."""
        assert self.replica is None
        self.key = ReplicaKey(self.node_id, directory_id)
        self.disk = self._new_disk()
        self.cluster.trace(self.node_id, "has a new disk")

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            backlog, self._backlog = self._backlog, []
            for call in backlog:
                call()

    # Time

    def now_ms(self) -> int:
        return int(self.cluster.now_us * self._rate) // 1_000 + self._clock_offset_ms

    def _arrange_tick(self, replica: Replica) -> None:
        deadline_ms = replica.next_deadline_ms
        if deadline_ms >= NEVER_MS:
            return
        # A tick that is a little late saves those that come to nothing.
        due_us = int((deadline_ms - self._clock_offset_ms) * 1_000 / self._rate) + 3_000
        if due_us < self.cluster.now_us:
            due_us = self.cluster.now_us
        if self._tick_us < 0 or due_us < self._tick_us:
            self._tick_us = due_us
            self.cluster.at(due_us, partial(self._tick, self.life, due_us))

    def _tick(self, life: int, due_us: int) -> None:
        replica = self.replica
        if replica is None or life != self.life or due_us != self._tick_us:
            return
        self._tick_us = -1
        if replica.next_deadline_ms <= self.now_ms():
            self._do(replica.tick)
        else:
            self._arrange_tick(replica)

    # Inputs

    def _do(self, call: Callable[..., None], *arguments: object) -> None:
        """An input, now or when the node goes on; its outputs are carried out."""
        if self._is_paused:
            self._backlog.append(partial(self._do_in_life, self.life, call, *arguments))
            return
        call(*arguments, self.now_ms())
        self._carry_out()

    def _do_in_life(self, life: int, call: Callable[..., None], *arguments: object) -> None:
        if life == self.life and self.replica is not None:
            self._do(call, *arguments)

    def receive(self, request: Message, token: object) -> None:
        replica = self.replica
        if replica is None:
            return
        if isinstance(request, ApiVersionsRequest):
            features = [SupportedFeatureKey(name=KRAFT_VERSION, min_version=0, max_version=1)]
            self.cluster.respond(self, token, ApiVersionsResponse(supported_features=features))
            return
        if isinstance(request, VoteRequest) and request.topics[0].partitions[0].pre_vote:
            before = replica.quorum.election
            self._do(replica.receive, request, token)
            after = replica.quorum.election
            if after.epoch == before.epoch and after.voted != before.voted:
                self.cluster.problem(f"node {self.node_id} has given its vote in a pre-vote")
            return
        self._do(replica.receive, request, token)

    def answered(self, origin: Origin, response: Message) -> None:
        if self.replica is not None and origin.life == self.life:
            self._do(self.replica.answered, origin.correlation, origin.node_id, response)

    def failed(self, life: int, correlation: int, node_id: int, error: ErrorCode) -> None:
        if self.replica is not None and life == self.life:
            self._do(self.replica.request_failed, correlation, node_id, error)

    def propose(self, batches: bytearray, number: int) -> None:
        if self.replica is not None:
            self._do(self.replica.propose, batches, number)

    def resign(self) -> None:
        replica = self.replica
        if replica is not None and replica.is_leader:
            self._do(replica.resign, replica.epoch)

    def upgrade_kraft_version(self) -> bool:
        """As a leader: make the voters of the configuration records, if all have described
        themselves."""
        replica = self.replica
        if replica is None or not replica.is_leader or self._is_paused:
            return False
        try:
            replica.upgrade_kraft_version(1, self.now_ms())
        except ApiError:
            return False
        finally:
            self._carry_out()
        self.cluster.count("kraft.version raised")
        return True

    def take_snapshot(self, *, forgets_log: bool) -> None:
        """Of what is applied."""
        replica, disk = self.replica, self.disk
        newest = disk.newest_snapshot_id
        offset = self.applied_offset
        if replica is None or offset == 0 or (newest is not None and newest.offset >= offset):
            return
        batch = next(each for each in reversed(disk.batches) if each.next_offset <= offset)
        snapshot_id = SnapshotId(offset, batch.epoch)
        history = replica.quorum.history
        content = snapshot_content(
            self.cluster.checker.state_at(offset),
            history.kraft_version_at(offset - 1),
            history.voters_at(offset - 1),
        )
        self.cluster.checker.snapshot_made(self.node_id, snapshot_id, content)
        disk.snapshots[snapshot_id] = content
        replica.snapshot_taken(snapshot_id)
        self.cluster.count("snapshots made")
        self.cluster.trace(self.node_id, f"has a snapshot at {offset}")
        if forgets_log:
            disk.advance_start(snapshot_id)

    # Outputs

    def _carry_out(self) -> None:
        replica = self.replica
        assert replica is not None
        outputs = replica.take_outputs()
        for output in outputs:
            self._carry_out_one(replica, output)
        self._look(replica)
        self._arrange_tick(replica)

    def _carry_out_one(self, replica: Replica, output: Output) -> None:
        cluster = self.cluster
        if isinstance(output, Send):
            self._check_sent(output.request)
            cluster.send(self, output)
        elif isinstance(output, Answer):
            self._check_answer(output)
            cluster.respond(self, output.token, output.response)
        elif isinstance(output, Sync):
            batches = self.disk.begin_sync()
            cluster.after(cluster.disk_us(), partial(self._synced, self.life, output, batches))
        elif isinstance(output, Persist):
            self.disk.unsynced_election = output.state
            cluster.after(cluster.disk_us(), partial(self._persisted, self.life, output))
        elif isinstance(output, HighWatermarkMoved):
            self._apply(replica, output.offset)
        elif isinstance(output, ProposalEnded):
            assert isinstance(output.token, int)
            cluster.proposal_ended(output.token, output.end_offset, output.error)
        elif isinstance(output, InstallSnapshot):
            cluster.after(cluster.disk_us(), partial(self._install, self.life, output.snapshot_id))
        elif isinstance(output, LeaderChanged):
            cluster.trace(self.node_id, f"leader of epoch {output.epoch}: {output.leader_id}")

    def _synced(self, life: int, sync: Sync, batches: list[StoredBatch]) -> None:
        if self.replica is not None and life == self.life:
            self.disk.finish_sync(batches)
            self._do(self.replica.synced, sync)

    def _persisted(self, life: int, persist: Persist) -> None:
        if self.replica is None or life != self.life:
            return
        self.disk.finish_persist()
        voted = persist.state.voted
        if voted is not None:
            self.cluster.checker.voted(self.key, persist.state.epoch, voted)
        self._do(self.replica.persisted)

    def _install(self, life: int, snapshot_id: SnapshotId) -> None:
        if self.replica is None or life != self.life:
            return
        content = self.disk.install_snapshot(snapshot_id)
        self.cluster.checker.snapshot_made(self.node_id, snapshot_id, content)
        if self._random.random() < 0.05 and self.cluster.links.is_faulty:
            self.cluster.count("power cuts in an installation")
            self.stop(with_power=False)
            self.cluster.after(300_000, self.cluster.start_if_down(self))
            return
        self.disk.restart_at(snapshot_id)
        self.applied_offset = snapshot_id.offset
        self.cluster.count("snapshots installed")
        self.cluster.trace(self.node_id, f"has installed the snapshot at {snapshot_id.offset}")
        replica = self.replica
        self._do(replica.snapshot_installed, snapshot_id)
        named = VoterHistory(self._static_voters)
        named.load(self.disk)
        if not self._is_paused and named.voters != replica.quorum.voters:
            self.cluster.problem(f"node {self.node_id} does not have the voters of its snapshot")

    def _apply(self, replica: Replica, offset: int) -> None:
        cluster = self.cluster
        state = replica.quorum.state
        if isinstance(state, Leader) and state.high_watermark == offset:
            cluster.checker.high_watermark_moved(replica, state, cluster.disks_of)
        batches = self.disk.batches
        first = len(batches)
        while first and batches[first - 1].next_offset > self.applied_offset:
            first -= 1
        for batch in batches[first:]:
            if batch.next_offset > offset:
                break
            cluster.checker.applied(self.node_id, state.epoch, batch)
            self.applied_offset = batch.next_offset
        if self.applied_offset != offset:
            cluster.problem(
                f"node {self.node_id} applies up to {self.applied_offset}, not {offset}"
            )

    # Checks

    def _look(self, replica: Replica) -> None:
        """What only a look at the replica tells."""
        epoch = replica.quorum.state.epoch
        if epoch < self._seen_epoch:
            self.cluster.problem(f"node {self.node_id}: epoch {self._seen_epoch} -> {epoch}")
        self._seen_epoch = epoch
        voters_offset = replica.quorum.history.voters_offset
        if voters_offset is not None and voters_offset >= self.disk.end_offset:
            self.cluster.problem(
                f"node {self.node_id} has voters of {voters_offset}, where its log has nothing"
            )
        state = replica.quorum.state
        if not isinstance(state, Leader):
            return
        if self._led_epoch != epoch:
            self._led_epoch = epoch
            self._voters_offset = voters_offset
            self.cluster.count("elections won")
            self.cluster.checker.became_leader(self.key, epoch, self.disk)
        elif self._voters_offset != voters_offset:
            self._voters_offset = voters_offset
            self.cluster.checker.check_voter_changes(replica, state)

    def _check_sent(self, request: Message) -> None:
        if isinstance(request, VoteRequest):
            partition = request.topics[0].partitions[0]
            if not partition.pre_vote:
                self._check_persisted(ElectionState(partition.replica_epoch, None, self.key))
        elif isinstance(request, FetchRequest):
            epoch = request.topics[0].partitions[0].current_leader_epoch
            if epoch > self.disk.election.epoch:
                self.cluster.problem(f"node {self.node_id} follows {epoch}: not on its disk")

    def _check_answer(self, answer: Answer) -> None:
        if not isinstance(answer.response, VoteResponse) or not answer.response.topics:
            return
        partition = answer.response.topics[0].partitions[0]
        origin = answer.token
        if isinstance(origin, Origin) and isinstance(origin.request, VoteRequest):
            asked = origin.request.topics[0].partitions[0]
            if partition.vote_granted and not asked.pre_vote:
                candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
                self.cluster.count("votes granted")
                self.cluster.checker.voted(self.key, asked.replica_epoch, candidate)
                self._check_persisted(ElectionState(asked.replica_epoch, None, candidate))
                self.cluster.voted(self)

    def _check_persisted(self, said: ElectionState) -> None:
        durable = self.disk.election
        if durable.epoch < said.epoch or (
            durable.epoch == said.epoch and durable.voted != said.voted
        ):
            self.cluster.problem(f"node {self.node_id} says {said}, and {durable} is on its disk")


def _wall_ms() -> int:
    return 0


def settings_of(options: Options) -> QuorumSettings:
    """Kafka's, but for what would only make more events: idle polls and impatient retries."""
    return QuorumSettings(
        election_timeout_ms=options.election_timeout_ms,
        fetch_max_wait_ms=900,
        retry_backoff_ms=250,
        fetch_max_bytes=options.fetch_max_bytes,
        fetch_snapshot_max_bytes=options.snapshot_chunk_bytes,
    )
