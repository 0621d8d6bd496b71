"""What must hold between the nodes of a cluster, after every turn of any of them.

- An epoch of the metadata quorum has one leader, and an epoch of a partition has one leader.
- A voter votes once in an epoch, and remembers it.
- Nodes whose metadata is at the same offset have the same image.
- A leader counts at least those as in sync whom the controller counts, at the same epochs.
- Every in-sync replica has on its disk what is below the high watermark of a leader, and so has
  every eligible leader replica.
- Nothing is committed while fewer than `min.insync.replicas` are in sync.
- What is below a high watermark is the same bytes on every node, in every life: it is committed.
- Whoever leads has everything that was committed before, unless it was elected uncleanly.

Everything is looked at behind the nodes' backs; what a node that is down has is what it had.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from tidelog.cluster.metadata.image import MetadataImage, TopicImage
from tidelog.cluster.replication.partition import Partition
from tidelog.protocol.record_batch import iterate_headers
from tidelog.raft.quorum_state_file import ElectionState
from tidelog.server.node import Node
from tidelog.storage.log import Log
from tidelog.storage.segment.segment import Segment
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


@dataclass(slots=True)
class _SeenOnNode:
    """What was looked at on a node in its current life."""

    life: int
    node: Node
    image: MetadataImage | None = None
    quorum_epoch: int = -1
    compared: dict[PartitionKey, int] = field(default_factory=dict)
    """Up to where the log of a partition is compared."""
    states: dict[PartitionKey, tuple[int, ...]] = field(default_factory=dict)
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
        self.comparisons = 0

    def check(self, which: SimulatedNode) -> None:
        """After a turn of a node."""
        node = which.node
        assert node is not None
        seen = self._seen.get(which.name)
        if seen is None or seen.life != which.lives:
            seen = self._seen[which.name] = _SeenOnNode(which.lives, node)
        self._check_quorum(which.name, node, seen)
        self._check_image(which.name, node, seen)
        self._check_metadata(which, node, seen)
        for partition in node.partitions:
            self._check_partition(which, partition, seen)

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

    def _check_image(self, name: str, node: Node, seen: _SeenOnNode) -> None:
        image = node.image
        if image is seen.image:
            return
        if seen.image is not None and image.offset < seen.image.offset:
            self._problem(f"{name}: the metadata went back to {image.offset}")
        seen.image = image
        if self._newest is None or image.offset > self._newest.offset:
            before, self._newest = self._newest, image
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
        now = (
            state.high_watermark,
            log.log_end_offset,
            log.durable_offset,
            state.leader_epoch,
            state.partition_epoch,
            int(state.is_leader),
        )
        if seen.states.get(key) == now:
            return
        seen.states[key] = now
        if log.log_end_offset < seen.ends.get(key, 0):
            self._simulation.count("truncations")
        seen.ends[key] = log.log_end_offset
        if log.config.durability != "fsync" or log.config.is_compacted:
            return
        committed = self._committed.setdefault(key, _Committed())
        if state.is_leader:
            self._check_leader(which, partition, committed)
            self._check_enough_in_sync(which, partition, seen)
        else:
            seen.led.pop(key, None)
        self._check_member(which, partition, committed)
        name = f"{partition.topic}-{partition.partition}"
        self._compare(which, key, name, log, state.high_watermark, committed, seen)

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
            self._check_in_sync(which, partition)

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
        if durable_offset >= committed.end_offset:
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
        for base_offset, batch in self._batches(which, log, begin, end_offset):
            self.comparisons += 1
            known = committed.batches.setdefault(base_offset, batch)
            if known != batch:
                self._problem(
                    f"{which.name}: {name}: the batch at {base_offset} (up to "
                    f"{batch.last_offset}) is not the one that was committed there (up to "
                    f"{known.last_offset})"
                )
        committed.end_offset = max(committed.end_offset, end_offset)
        seen.compared[key] = end_offset

    def _batches(
        self, which: SimulatedNode, log: Log, begin: int, end: int
    ) -> list[tuple[int, _Batch]]:
        found: list[tuple[int, _Batch]] = []
        for segment in _segments_from(log, begin):
            content = memoryview(which.disk.read(segment.path))
            for at, header in iterate_headers(content):
                if header.base_offset >= end or at + header.size_bytes > len(content):
                    return found
                if header.base_offset >= begin:
                    digest = blake2b(content[at : at + header.size_bytes], digest_size=8).digest()
                    found.append((header.base_offset, _Batch(header.last_offset, digest)))
        return found

    def _tell(self, which: SimulatedNode, partition: Partition, what: str) -> None:
        self._problem(f"{which.name}: {partition.topic}-{partition.partition}: {what}")


def _segments_from(log: Log, offset: int) -> list[Segment]:
    """The segments from the one that covers an offset on."""
    segments = log.segments
    first = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    return segments[max(first, 0) :]


def _difference(one: MetadataImage, other: MetadataImage) -> str:
    """The fields in which two images differ."""
    names = [
        name
        for name in MetadataImage.__dataclass_fields__
        if getattr(one, name) != getattr(other, name)
    ]
    return "; ".join(f"{name}: {getattr(one, name)} / {getattr(other, name)}" for name in names)
