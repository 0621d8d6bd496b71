"""What must hold after every event, and how it is known without looking at everything each time.

    single leader        an epoch has one leader
    one vote             a voter gives its vote in an epoch to one candidate, over all its lives
    persisted            what a message says was on disk before it left
    log matching         a batch at an offset of an epoch is the same in every log, and so is the
                         epoch before it; so logs that agree at a point agree up to it
    durable majority     the leader's high watermark is on the disks of a majority of its voters,
                         and what is before it is of the leader's own epoch
    no loss              nobody truncates what is committed
    pre-votes            change nothing
    leader completeness  a new leader has everything that was committed in epochs before its own
    state machine        every replica applies the same batches at the same offsets
    monotonic            a replica's high watermark and epoch do not go back in its life
    snapshots            are of committed state, and equal where they are of the same offset
    voters               are those of the own log; one change of their keys is uncommitted at a
                         time
    proposals            end once; committed ones are in the log for good, refused ones never are

Each check happens where the fact arises (an append, an election, a step of a high watermark), so
its cost does not grow with the length of a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from zlib import crc32

from tidelog.protocol.errors import ApiError
from tidelog.raft.leader_state import Leader
from tidelog.raft.quorum import NotAppended
from tidelog.raft.raft_log import SnapshotId
from tidelog.raft.replica import Replica
from tidelog.raft.voters import ReplicaKey
from tidelog.testing.simulation.consensus.disk import SimulatedDisk, StoredBatch


class Checker:
    """Knows what all replicas together have done."""

    def __init__(self, problem: Callable[[str], None]) -> None:
        self._problem = problem
        self._leaders: dict[int, ReplicaKey] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        self.committed: dict[int, StoredBatch] = {}
        self._committed_in: dict[int, int] = {}  # by base offset: the epoch whose leader did it
        self.committed_end = 0
        self._states = {0: 0}
        self._snapshots: dict[SnapshotId, bytes] = {}
        self.outcomes: dict[int, ApiError | int | None] = {}
        """Of proposals: the offset after it, why it failed, or None while nobody knows."""

    # Elections

    def became_leader(self, key: ReplicaKey, epoch: int, disk: SimulatedDisk) -> None:
        other = self._leaders.setdefault(epoch, key)
        if other != key:
            self._problem(f"epoch {epoch} has two leaders: {other.id} and {key.id}")
        # A candidate that was paused may win its epoch when a later one has long committed more.
        stored = {batch.base_offset: batch for batch in disk.batches}
        for batch in self.committed.values():
            if (
                self._committed_in[batch.base_offset] < epoch
                and batch.next_offset > disk.start_offset
                and stored.get(batch.base_offset) != batch
            ):
                self._problem(
                    f"leader {key.id} of epoch {epoch} lacks the committed batch at "
                    f"{batch.base_offset} of epoch {batch.epoch}"
                )
                return

    def voted(self, voter: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        other = self._votes.setdefault((voter, epoch), candidate)
        if other != candidate:
            self._problem(
                f"node {voter.id} votes in epoch {epoch} for {candidate.id}, and before that for "
                f"{other.id}"
            )

    # The log

    def appended(self, batch: StoredBatch, epoch_before: int) -> None:
        key = batch.base_offset, batch.epoch
        data, before = self._entries.setdefault(key, (batch.data, epoch_before))
        # A log that begins at a snapshot may not know which epoch came before.
        if data != batch.data or (before != epoch_before and -1 not in (before, epoch_before)):
            self._problem(f"two logs differ at {key[0]} in epoch {key[1]}")

    def high_watermark_moved(
        self,
        replica: Replica,
        leader: Leader,
        disks: Callable[[ReplicaKey], Iterable[SimulatedDisk]],
    ) -> None:
        """Of a leader: a majority of the voters must have it on disk."""
        offset = leader.high_watermark
        assert offset is not None
        epoch = _epoch_before(replica.quorum.log, offset)
        if epoch != leader.epoch:
            self._problem(
                f"leader {leader.leader_id} of epoch {leader.epoch} commits {offset}, of {epoch}"
            )
        voters = replica.quorum.history.voters
        count = sum(
            any(disk.has_synced(offset, epoch) for disk in disks(node.key)) for node in voters
        )
        if count < voters.majority:
            self._problem(
                f"leader {replica.quorum.key.id} takes {offset} for committed, which {count} of "
                f"{len(voters)} voters have on disk"
            )

    def applied(self, node_id: int, epoch: int, batch: StoredBatch) -> int:
        """A replica in `epoch` applies what it takes for committed; returns the state after it.
        The first to do so is the leader that commits it."""
        known = self.committed.get(batch.base_offset)
        if known is not None:
            if known != batch:
                self._problem(
                    f"node {node_id} applies another batch at {batch.base_offset} (epoch "
                    f"{batch.epoch}) than others did (epoch {known.epoch})"
                )
        elif batch.base_offset != self.committed_end:
            self._problem(
                f"node {node_id} applies {batch.base_offset}, beyond {self.committed_end}"
            )
        else:
            self.committed[batch.base_offset] = batch
            self._committed_in[batch.base_offset] = epoch
            self.committed_end = batch.next_offset
            self._states[batch.next_offset] = crc32(batch.data, self._states[batch.base_offset])
        return self._states.get(batch.next_offset, -1)

    def truncated(self, batch: StoredBatch) -> None:
        if self.committed.get(batch.base_offset) == batch:
            self._problem(f"the committed batch at {batch.base_offset} is truncated")

    def check_voter_changes(self, replica: Replica, leader: Leader) -> None:
        """Of a leader whose voters have changed."""
        history = replica.quorum.history
        high_watermark = leader.high_watermark or leader.epoch_start_offset
        sets = history.voters_since(high_watermark - 1)
        keys = {frozenset(node.key for node in voters) for voters in sets}
        if len(keys) > 2 and leader.high_watermark is not None:
            self._problem(f"leader {replica.quorum.key.id} has several changes of the voters open")

    # Snapshots

    def state_at(self, offset: int) -> int | None:
        return self._states.get(offset)

    def snapshot_made(self, node_id: int, snapshot_id: SnapshotId, content: bytes) -> None:
        if snapshot_id.offset not in self._states:
            self._problem(f"node {node_id} has a snapshot at {snapshot_id.offset}: not committed")
        other = self._snapshots.setdefault(snapshot_id, content)
        if other != content:
            self._problem(f"node {node_id} has another snapshot at {snapshot_id} than others")

    # Proposals

    def proposed(self, number: int) -> None:
        self.outcomes[number] = None

    def proposal_ended(self, number: int, end_offset: int, error: ApiError | None) -> None:
        if self.outcomes.get(number) is not None:
            self._problem(f"proposal {number} ends twice")
        self.outcomes[number] = end_offset if error is None else error
        if error is None and end_offset > self.committed_end:
            self._problem(f"proposal {number} counts as committed and is not")

    def check_outcomes(
        self, unanswered: set[int], number_of: Callable[[bytes], int | None]
    ) -> None:
        """At the end: `unanswered` are those of which nobody could hear."""
        found = {}
        for batch in self.committed.values():
            number = number_of(batch.data)
            if number is not None:
                if number in found:
                    self._problem(f"proposal {number} is in the log twice")
                found[number] = batch
        for number, outcome in self.outcomes.items():
            at = found.get(number)
            if isinstance(outcome, int):
                if at is None or at.next_offset != outcome:
                    self._problem(f"proposal {number} was committed and is not in the log")
            elif isinstance(outcome, NotAppended):
                if at is not None:
                    self._problem(f"proposal {number} was refused and is in the log")
            elif outcome is None and number not in unanswered:
                self._problem(f"proposal {number} never ends")


def _epoch_before(log: SimulatedDisk | object, offset: int) -> int:
    assert isinstance(log, SimulatedDisk)
    for batch in reversed(log.batches):
        if batch.next_offset <= offset:
            return batch.epoch
    return -1
