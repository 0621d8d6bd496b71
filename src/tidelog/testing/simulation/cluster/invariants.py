"""What must hold between the nodes of a cluster, after every turn of any of them.

- An epoch of the metadata quorum has one leader, and an epoch of a partition has one leader.
- A voter votes once in an epoch, and remembers it.
- Nodes whose metadata is at the same offset have the same image.
- A leader counts at least those as in sync whom the controller counts, at the same epochs.
- Every in-sync replica has on its disk what is below the high watermark of a leader, and so has
  every eligible leader replica.
- Nothing is committed while fewer than `min.insync.replicas` are in sync.
- What is below a high watermark is the same bytes on every node, in every life: it is committed.
- Whoever leads has everything that was committed before, unless it was elected uncleanly: then
  what it lacks is noted as lost, and what is committed goes on from there.
- Metadata that a node goes by is committed: its high watermark covers it, and so do the disks of a
  majority of the voters.
- What a replica knows of producers and of open transactions is what its log says, when it begins to
  lead, in each life, and after each truncation (`producer_invariants.py`).

Decisions of the controller have a file of their own (`decision_invariants.py`), and so have
transactions (`transaction_invariants.py`).

Everything is looked at behind the nodes' backs; what a node that is down has is what it had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from tidelog.cluster.metadata.image import MetadataImage, TopicImage
from tidelog.cluster.replication.partition import Partition
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.raft.quorum_state_file import ElectionState
from tidelog.raft.voters import VoterSet
from tidelog.server.node import Node
from tidelog.storage.log import Log
from tidelog.testing.simulation.cluster.decision_invariants import DecisionInvariants
from tidelog.testing.simulation.cluster.log_reader import LogReader
from tidelog.testing.simulation.cluster.producer_invariants import why_not_as_the_log_says
from tidelog.testing.simulation.cluster.transaction_invariants import TransactionInvariants
from tidelog.testing.simulation.invariants import allows_unclean_elections
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.simulation import Simulation

PartitionKey = tuple[bytes, int]
_METADATA: PartitionKey = (b"", 0)


class _Batch(NamedTuple):
    last_offset: int
    digest: bytes


@dataclass(slots=True)
class _Committed:
    """The committed log of one partition, as the first to commit it had it."""

    batches: dict[int, _Batch] = field(default_factory=dict)
    """By base offset."""
    end_offset: int = 0
    leader: int = -1
    leader_epoch: int = -1
    unclean_epoch: int = -1
    """The last one that began with an unclean election, of those that were looked at."""
    kept_offset: int = 0
    """Up to where that leader had what was committed before."""
    losses: list[tuple[int, int]] = field(default_factory=list)
    """The first and the next offset of what was committed and is lost."""
    power_cuts: dict[int, int] = field(default_factory=dict)
    """Of a topic in the page cache: how often each node had lost power at the last commit."""


@dataclass(slots=True)
class _SeenOnNode:
    """What was looked at on a node in its current life."""

    life: int
    node: Node
    image: MetadataImage | None = None
    quorum_epoch: int = -1
    compared: dict[PartitionKey, int] = field(default_factory=dict)
    """Up to where the log of a partition is compared."""
    readers: dict[PartitionKey, LogReader] = field(default_factory=dict)
    states: dict[PartitionKey, tuple[object, ...]] = field(default_factory=dict)
    replayed: dict[PartitionKey, tuple[int, int]] = field(default_factory=dict)
    """How often a log was cut, and the epoch that was led, when its producers were looked at."""
    ends: dict[PartitionKey, int] = field(default_factory=dict)
    led: dict[PartitionKey, tuple[int, bool]] = field(default_factory=dict)
    """Of a leader: its high watermark, and whether enough replicas were in sync."""


class ClusterInvariants:
    """Watches all nodes of a cluster over all their lives."""

    def __init__(
        self,
        simulation: Simulation,
        nodes: Sequence[SimulatedNode],
        problem: Callable[[str], None],
    ) -> None:
        self._simulation = simulation
        self._nodes = nodes
        self._problem = problem
        self._seen: dict[str, _SeenOnNode] = {}
        self._quorum_leaders: dict[int, str] = {}
        self._voter_epochs: dict[str, int] = {}
        self._votes: dict[tuple[str, int], int] = {}
        self._partition_leaders: dict[tuple[PartitionKey, int], str] = {}
        self._images: dict[int, tuple[str, MetadataImage]] = {}
        self._committed: dict[PartitionKey, _Committed] = {}
        self._newest: MetadataImage | None = None
        self._synced_metadata: dict[int, int] = {}
        """Up to where each node has the metadata on its disk, as it knew last."""
        self.decisions = DecisionInvariants(simulation, problem)
        self.transactions = TransactionInvariants(simulation, problem)
        self.comparisons = 0

    def check(self, which: SimulatedNode) -> None:
        """After a turn of a node."""
        node = which.node
        assert node is not None
        seen = self._seen.get(which.name)
        if seen is None or seen.life != which.lives:
            if seen is not None:
                self._note_synced(which.node_id, seen.node)
            seen = self._seen[which.name] = _SeenOnNode(which.lives, node)
        moved = [each for each in node.partitions if self._has_moved(each, seen)]
        self._check_quorum(which.name, node, seen)
        self._check_image(which, node, seen)
        self._check_metadata(which, node, seen)
        for partition in moved:
            self._check_partition(which, partition, seen)
        if moved:
            self.transactions.look_at(which, moved)

    def _has_moved(self, partition: Partition, seen: _SeenOnNode) -> bool:
        log, state = partition.log, partition.state
        key = partition.topic_id, partition.partition
        now = (
            state.high_watermark,
            log.log_end_offset,
            log.durable_offset,
            state.leader_epoch,
            state.partition_epoch,
            state.is_leader,
            state._pending,
        )
        if seen.states.get(key) == now:
            return False
        seen.states[key] = now
        self.decisions.note_proposal(partition)
        return True

    def was_lost(self, partition: TopicPartition, offset: int) -> bool:
        """Whether what was committed there was lost by an unclean election."""
        topic = None if self._newest is None else self._newest.topics_by_name.get(partition.topic)
        if topic is None:
            return False
        committed = self._committed.get((topic.topic_id, partition.partition))
        return committed is not None and any(
            first <= offset < end for first, end in committed.losses
        )

    # The metadata

    def _check_quorum(self, name: str, node: Node, seen: _SeenOnNode) -> None:
        quorum = node.metadata.quorum
        epoch = quorum.replica.quorum.epoch
        if not quorum.replica._is_still:
            # What is not on disk yet nobody has heard of.
            self._check_vote(name, quorum.replica.quorum.election)
        if not quorum.is_leader or epoch == seen.quorum_epoch:
            return
        seen.quorum_epoch = epoch
        leader = self._quorum_leaders.setdefault(epoch, name)
        if leader != name:
            self._problem(f"both {leader} and {name} lead the quorum in epoch {epoch}")
        self._simulation.counts["quorum elections"] = len(self._quorum_leaders)

    def _check_vote(self, name: str, election: ElectionState) -> None:
        """A voter's epoch does not go back, and it has one vote in each, over all its lives."""
        epoch = election.epoch
        before = self._voter_epochs.get(name, 0)
        if epoch < before:
            self._problem(f"{name} was in epoch {before} of the quorum and is in {epoch}")
        self._voter_epochs[name] = epoch
        if election.voted is not None:
            # At kraft.version 0 the directory of the candidate is not written down.
            voted = self._votes.setdefault((name, epoch), election.voted.id)
            if voted != election.voted.id:
                self._problem(
                    f"{name} voted for node {voted} and node {election.voted.id} in epoch {epoch}"
                )

    def _check_image(self, which: SimulatedNode, node: Node, seen: _SeenOnNode) -> None:
        name, image = which.name, node.image
        replica = node.metadata.quorum.replica
        self._note_synced(which.node_id, node)
        if image is seen.image:
            return
        high_watermark = replica.high_watermark
        if high_watermark is not None and image.offset >= high_watermark:
            self._problem(
                f"{name} goes by the metadata at offset {image.offset}, and knows that it is "
                f"committed up to {high_watermark}"
            )
        if seen.image is not None and image.offset < seen.image.offset:
            self._problem(f"{name}: the metadata went back to {image.offset}")
        seen.image = image
        if self._newest is None or image.offset > self._newest.offset:
            before, self._newest = self._newest, image
            self._check_is_on_disks(name, image.offset)
            self.decisions.follow(which, image)
            if before is not None:
                self._look_at_changes(before, image)
        if image.offset < 0:
            return  # nothing is known yet; who founds a cluster knows a little of it
        known = self._images.setdefault(image.offset, (name, image))
        if known[1] is not image:
            self.comparisons += 1
            if known[1] != image:
                self._problem(
                    f"the metadata of {name} and {known[0]} differs at offset {image.offset}: "
                    f"{_difference(known[1], image)}"
                )

    def _note_synced(self, node_id: int, node: Node) -> None:
        quorum = node.metadata.quorum.replica.quorum
        # What was on disk in an earlier life is there still, and is found out by a sync.
        before = 0 if quorum.is_synced else self._synced_metadata.get(node_id, 0)
        self._synced_metadata[node_id] = max(quorum.synced_offset, before)

    def _check_is_on_disks(self, name: str, offset: int) -> None:
        """A majority of voters has the newest metadata: of those of now, or of those that counted
        at this offset, on any node."""
        for each in self._nodes:
            if each.node is not None and not each.is_alive:
                self._note_synced(each.node_id, each.node)  # as of the turn in which it ended
        has_it = {each for each, end in self._synced_metadata.items() if end > offset}
        quorums = [each.node.metadata.quorum for each in self._nodes if each.node is not None]
        sets: list[VoterSet] = [each.voters for each in quorums]
        sets += [each.voters_at(offset) for each in quorums]
        if offset >= 0 and not any(len(has_it & {*each.ids}) >= each.majority for each in sets):
            self._problem(
                f"{name} goes by the metadata at offset {offset}, which of the voters "
                f"{[*sets[0].ids]} only {sorted(has_it)} have on disk"
            )

    def _check_metadata(self, which: SimulatedNode, node: Node, seen: _SeenOnNode) -> None:
        """The log of the metadata is the same everywhere as far as it is committed, and who leads
        the quorum has all of it."""
        log, quorum = node.metadata.log, node.metadata.quorum
        end_offset, epoch = node.image.offset + 1, quorum.replica.quorum.epoch
        committed = self._committed.setdefault(_METADATA, _Committed())
        if (
            quorum.is_leader
            and epoch >= committed.leader_epoch
            and log.log_end_offset < committed.end_offset
        ):
            self._problem(
                f"{which.name} leads the quorum in epoch {epoch} with a log that ends at "
                f"{log.log_end_offset}; {committed.end_offset} was committed in epoch "
                f"{committed.leader_epoch}"
            )
        committed.leader_epoch = max(committed.leader_epoch, node.image.epoch)
        self._compare(which, _METADATA, "metadata", log, end_offset, committed, seen)

    def _look_at_changes(self, before: MetadataImage, image: MetadataImage) -> None:
        """What the controller has changed since the last image."""
        counts = self._simulation.counts
        for name, topic in image.topics_by_name.items():
            old = before.topics_by_name.get(name)
            if old is None or old is topic or old.topic_id != topic.topic_id:
                continue
            # A topic's partitions are never fewer than before.
            for then, now in zip(old.partitions, topic.partitions, strict=False):
                counts["leader changes"] += now.leader_epoch > then.leader_epoch
                counts["in-sync sets shrunk"] += bool(set(then.isr) - set(now.isr))
                counts["eligible leader replicas"] += bool(now.eligible_leader_replicas)
                if set(now.isr) - set(then.isr):
                    counts["in-sync sets grown"] += 1
                    self._check_members(topic, now.partition)
                elif set(now.eligible_leader_replicas) - set(then.eligible_leader_replicas):
                    self._check_members(topic, now.partition)

    # Partitions

    def _check_partition(
        self, which: SimulatedNode, partition: Partition, seen: _SeenOnNode
    ) -> None:
        log, state = partition.log, partition.state
        key = partition.topic_id, partition.partition
        if log.log_end_offset < seen.ends.get(key, 0):
            self._simulation.count("truncations")
        seen.ends[key] = log.log_end_offset
        self._check_producers(which, partition, seen)
        if log.config.is_compacted:
            return
        committed = self._committed.setdefault(key, _Committed())
        if state.is_leader:
            self._note_losses(which, partition, committed)
            self._check_leader(which, partition, committed)
            self._check_enough_in_sync(which, partition, seen)
        else:
            seen.led.pop(key, None)
        self._check_member(which, partition, committed)
        name = f"{partition.topic}-{partition.partition}"
        if self._follows_newest(partition, committed):
            self._compare(which, key, name, log, state.high_watermark, committed, seen)

    def _check_producers(
        self, which: SimulatedNode, partition: Partition, seen: _SeenOnNode
    ) -> None:
        """In each life, after each truncation, and when a leader epoch begins."""
        log, state = partition.log, partition.state
        key = partition.topic_id, partition.partition
        led_epoch = state.leader_epoch if state.is_leader else -1
        now = log.local._truncation_count, led_epoch
        if seen.replayed.get(key) == now or log.is_truncating:
            return
        seen.replayed[key] = now
        wrong = why_not_as_the_log_says(which, partition)
        if wrong:
            self._tell(which, partition, wrong)

    def _note_losses(
        self, which: SimulatedNode, partition: Partition, committed: _Committed
    ) -> None:
        """A leader that was elected uncleanly: from where its log is another one on, or has nothing
        from before its epoch, what was committed is lost."""
        state, key = partition.state, (partition.topic_id, partition.partition)
        if state.leader_epoch < committed.unclean_epoch:
            # The leader before goes on until it hears that it is none: all of that is lost.
            if state.high_watermark > committed.kept_offset:
                committed.losses.append((committed.kept_offset, state.high_watermark))
            return
        epoch = self.decisions.unclean.get(key, -1)
        if not committed.unclean_epoch < epoch <= state.leader_epoch:
            return
        assert which.node is not None
        needs_cut = not allows_unclean_elections(which.node, partition)
        if needs_cut and _is_synced(partition):
            return  # nothing may be lost
        committed.unclean_epoch = epoch
        kept = min(state.leader_epoch_start_offset, committed.end_offset)
        for header, content in LogReader(which, partition.log).read(
            partition.log_start_offset, kept
        ):
            known = committed.batches.get(header.base_offset)
            if known is None or known.digest != _digest(content):
                kept = header.base_offset
                break
        if kept < committed.end_offset:
            self._simulation.count("losses by an unclean election")
            if needs_cut and which.disk.power_cuts == committed.power_cuts.get(which.node_id, 0):
                self._tell(
                    which,
                    partition,
                    f"has lost {kept} to {committed.end_offset} and was elected, and has had power "
                    "since they were committed",
                )
            self._simulation.trace(
                "invariants",
                f"{partition.topic}-{partition.partition}: {kept} to {committed.end_offset} are "
                f"lost by the unclean election of node {state.leader} in epoch {epoch}",
            )
            committed.losses.append((kept, committed.end_offset))
            for offset in [each for each in committed.batches if each >= kept]:
                del committed.batches[offset]
            committed.end_offset = kept
        committed.kept_offset = kept
        committed.leader, committed.leader_epoch = state.leader, state.leader_epoch

    def _may_have_lost(
        self, which: SimulatedNode, partition: Partition, committed: _Committed
    ) -> bool:
        """Whether a leader was elected uncleanly, and its log has not been looked at yet."""
        key = partition.topic_id, partition.partition
        if self.decisions.unclean.get(key, -1) <= committed.unclean_epoch:
            return False
        assert which.node is not None
        return allows_unclean_elections(which.node, partition)

    def _follows_newest(self, partition: Partition, committed: _Committed) -> bool:
        """After an unclean election a replica has what was lost until it hears of the leader, and
        is cut: when it is in sync that has happened."""
        if committed.unclean_epoch < 0 or partition.is_leader:
            return partition.leader_epoch >= committed.unclean_epoch
        topic = None if self._newest is None else self._newest.topics_by_id.get(partition.topic_id)
        if topic is None:
            return False
        row = topic.partitions[partition.partition]
        return row.leader_epoch == partition.leader_epoch and partition.node_id in row.isr

    def _check_leader(
        self, which: SimulatedNode, partition: Partition, committed: _Committed
    ) -> None:
        state, log = partition.state, partition.log
        key = partition.topic_id, partition.partition
        leader = self._partition_leaders.setdefault((key, state.leader_epoch), which.name)
        if leader != which.name:
            self._tell(which, partition, f"{leader} leads in epoch {state.leader_epoch} too")
        is_newest = state.leader_epoch >= committed.leader_epoch
        if is_newest and log.log_end_offset < committed.end_offset:
            self._tell(
                which,
                partition,
                f"leads in epoch {state.leader_epoch} with a log that ends at "
                f"{log.log_end_offset}; {committed.end_offset} was committed by node "
                f"{committed.leader} in epoch {committed.leader_epoch}",
            )
        if is_newest and state.high_watermark > committed.end_offset:
            committed.leader, committed.leader_epoch = partition.node_id, state.leader_epoch
            if _is_synced(partition):
                self._check_in_sync(which, partition)
            else:
                committed.power_cuts = {each.node_id: each.disk.power_cuts for each in self._nodes}

    def _check_enough_in_sync(
        self, which: SimulatedNode, partition: Partition, seen: _SeenOnNode
    ) -> None:
        """The set may have shrunk in the same turn, after the high watermark has moved."""
        state, key = partition.state, (partition.topic_id, partition.partition)
        needed = min(partition.log.config.min_insync_replicas, len(state.replicas))
        is_enough = len(state.isr) >= needed
        high_watermark, was_enough = seen.led.get(key, (state.high_watermark, True))
        if state.high_watermark > high_watermark and not (is_enough or was_enough):
            self._tell(
                which,
                partition,
                f"commits up to {state.high_watermark} with {state.isr} in sync of {needed}",
            )
        seen.led[key] = state.high_watermark, is_enough

    def _check_member(
        self, which: SimulatedNode, partition: Partition, committed: _Committed
    ) -> None:
        """Whom the controller counts as in sync has on disk what is committed, at any time; so has
        whom it may let lead when nobody is in sync."""
        durable_offset = partition.log.durable_offset
        if (
            durable_offset >= committed.end_offset
            or not _is_synced(partition)
            or self._may_have_lost(which, partition, committed)
        ):
            return
        topic = None if self._newest is None else self._newest.topics_by_id.get(partition.topic_id)
        if topic is None:
            return
        row = topic.partitions[partition.partition]
        if which.node_id in row.isr or which.node_id in row.eligible_leader_replicas:
            role = "in sync" if which.node_id in row.isr else "eligible to lead"
            self._tell(
                which,
                partition,
                f"is {role} with {durable_offset} on disk; {committed.end_offset} was committed "
                f"by node {committed.leader} in epoch {committed.leader_epoch}",
            )

    def _check_members(self, topic: TopicImage, index: int) -> None:
        """The in-sync set of a partition is another one."""
        committed = self._committed.get((topic.topic_id, index))
        for which in self._nodes:
            node = which.node
            partition = None if node is None else node.partitions.get_by_id(topic.topic_id, index)
            if partition is not None and committed is not None:
                self._check_member(which, partition, committed)

    def _check_in_sync(self, which: SimulatedNode, partition: Partition) -> None:
        """The high watermark has moved: everybody whom the controller counts has so much on disk,
        and whom the controller counts the leader counts too."""
        image = self._newest
        topic = None if image is None else image.topics_by_name.get(partition.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            return
        row = topic.partitions[partition.partition]
        if row.leader_epoch != partition.leader_epoch:
            return
        for other in self._nodes:
            node_id = other.node_id
            if node_id not in row.isr or other is which:
                continue
            if row.partition_epoch == partition.partition_epoch and node_id not in partition.isr:
                self._tell(which, partition, f"does not know that {other.name} is in sync")
            node = other.node
            replica = (
                None if node is None else node.partitions.get(partition.topic, partition.partition)
            )
            if replica is None or replica.topic_id != partition.topic_id:
                continue
            if replica.log.durable_offset < partition.high_watermark:
                self._tell(
                    which,
                    partition,
                    f"has the high watermark {partition.high_watermark}, and {other.name} is in "
                    f"sync with {replica.log.durable_offset} on its disk",
                )

    def _compare(
        self,
        which: SimulatedNode,
        key: PartitionKey,
        name: str,
        log: Log,
        end_offset: int,
        committed: _Committed,
        seen: _SeenOnNode,
    ) -> None:
        """What has come to be committed on a node is what others have there."""
        if log.log_end_offset < seen.compared.get(key, 0):
            del seen.compared[key]  # the replica was moved away and has come back, empty
        begin = max(seen.compared.get(key, 0), log.log_start_offset)
        if end_offset <= begin:
            return
        reader = seen.readers.get(key)
        if reader is None or reader.log is not log:
            reader = seen.readers[key] = LogReader(which, log)
        for header, content in reader.read(begin, end_offset):
            self.comparisons += 1
            base_offset = header.base_offset
            batch = _Batch(header.last_offset, _digest(content))
            known = committed.batches.setdefault(base_offset, batch)
            if known != batch:
                self._problem(
                    f"{which.name}: {name}: the batch at {base_offset} (up to "
                    f"{batch.last_offset}) is not the one that was committed there (up to "
                    f"{known.last_offset})"
                )
        committed.end_offset = max(committed.end_offset, end_offset)
        seen.compared[key] = end_offset

    def _tell(self, which: SimulatedNode, partition: Partition, what: str) -> None:
        self._problem(f"{which.name}: {partition.topic}-{partition.partition}: {what}")


def _is_synced(partition: Partition) -> bool:
    """Of a topic in the page cache a node has less after a power cut, until it has registered."""
    return partition.log.config.durability == "fsync"


def _digest(content: memoryview) -> bytes:
    return blake2b(content, digest_size=8).digest()


def _difference(one: MetadataImage, other: MetadataImage) -> str:
    """The fields in which two images differ."""
    names = [
        name
        for name in MetadataImage.__dataclass_fields__
        if getattr(one, name) != getattr(other, name)
    ]
    return "; ".join(f"{name}: {getattr(one, name)} / {getattr(other, name)}" for name in names)
