"""What must hold of each decision of the controller about a partition, record by record.

The committed records of the metadata log are read as they come, and each change of a partition is
held against the image that it changes:

- A node gets into the in-sync set because the leader of that leader epoch has proposed this very
  set at that partition epoch, and the node is active then, in the life that the leader knew; or by
  its election.
- A node leaves the set because that leader has proposed it, or because its broker goes, loses a
  directory or loses the replica.
- Who leads is active, was in sync or eligible to lead, and has not been fenced since. Another one
  leads only where the topic allows it, or when it was the last leader and nobody has everything.
- While fewer than `min.insync.replicas` are in sync, who was in sync or eligible stays one of the
  two, unless its broker has stopped uncleanly.

What leaders propose is noted when it can be seen, which is before anybody can have heard of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.partition_changes import PartitionRules
from tidelog.cluster.directory_ids import is_online
from tidelog.cluster.metadata.image import (
    NO_LEADER,
    LeaderRecoveryState,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from tidelog.cluster.metadata.image_changes import merge_partition
from tidelog.cluster.metadata.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tidelog.cluster.metadata.records.framing import decode_record
from tidelog.cluster.metadata.records.topics import PartitionChangeRecord
from tidelog.cluster.replication.follower_progress import UNKNOWN_BROKER_EPOCH
from tidelog.cluster.replication.partition import Partition
from tidelog.cluster.replication.replication_state import IsrProposal
from tidelog.protocol.records import decode_records
from tidelog.protocol.schema import Message
from tidelog.testing.simulation.cluster.log_reader import LogReader
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.simulation import Simulation

PartitionKey = tuple[bytes, int]
_OF_BROKERS = (RegisterBrokerRecord, BrokerRegistrationChangeRecord, UnregisterBrokerRecord)


@dataclass(slots=True)
class _Batch:
    """A batch of the metadata log: one decision or several that were made in the same moment."""

    after: MetadataImage
    rules: PartitionRules
    """Of the image before the record that is looked at."""
    changed_brokers: set[int]
    """Those of which something has changed, for better or worse."""
    registered_brokers: set[int]


@dataclass(slots=True)
class _Change:
    """A partition before and after one record."""

    topic: TopicImage
    before: PartitionImage
    after: PartitionImage
    batch: _Batch
    proposals: list[IsrProposal] = field(default_factory=list)
    """Of the leader before it, at the epochs before it."""

    @property
    def is_unclean(self) -> bool:
        before, after = self.before, self.after
        return (
            after.leader_epoch > before.leader_epoch
            and after.leader_recovery_state == LeaderRecoveryState.RECOVERING
            and after.isr == (after.leader,)
            and after.leader not in (before.isr or before.eligible_leader_replicas)
        )

    @property
    def is_growth(self) -> bool:
        """Whether replicas are added and none is taken away."""
        before, after = self.before, self.after
        return len(after.replicas) > len(before.replicas) and not after.removing_replicas

    def carried_out(self) -> list[IsrProposal]:
        """The proposals that the record may carry out, less what a reassignment takes away."""
        after, replicas = set(self.after.isr), set(self.after.replicas)
        return [
            each
            for each in self.proposals
            if after <= set(each.isr) and not (set(each.isr) - after) & replicas
        ]


class DecisionInvariants:
    """Follows the newest committed metadata."""

    def __init__(self, simulation: Simulation, problem: Callable[[str], None]) -> None:
        self._simulation = simulation
        self._problem = problem
        self.on_proposal: Callable[[Partition], None] | None = None
        """Hears of each proposal when it is made."""
        self._image: MetadataImage | None = None
        self._readers: dict[str, LogReader] = {}
        self._proposals: dict[tuple[PartitionKey, int, int, int], list[IsrProposal]] = {}
        """By partition, the leader that made them, leader epoch and partition epoch."""
        self._last_proposal: dict[tuple[PartitionKey, int], IsrProposal] = {}
        self.unclean: dict[PartitionKey, int] = {}
        """The last leader epoch of each partition that began with an unclean election."""

    def note_proposal(self, partition: Partition) -> None:
        """What the leader of a partition has on its way to the controller."""
        proposal = partition.state._pending
        key = partition.topic_id, partition.partition
        if proposal is None or self._last_proposal.get((key, partition.node_id)) is proposal:
            return
        self._last_proposal[key, partition.node_id] = proposal
        at = key, partition.node_id, proposal.leader_epoch, proposal.partition_epoch
        self._proposals.setdefault(at, []).append(proposal)
        if self.on_proposal is not None:
            self.on_proposal(partition)

    def follow(self, which: SimulatedNode, image: MetadataImage) -> None:
        """The newest committed metadata is this image, and this node has it."""
        before = self._image
        node = which.node
        assert node is not None
        log = node.metadata.log
        if before is None or before.offset + 1 < log.log_start_offset:
            # The node has begun with a snapshot: what lies before it cannot be told apart.
            self._image = image
            return
        reader = self._readers.get(which.name)
        if reader is None or reader.log is not log:
            reader = self._readers[which.name] = LogReader(which, log)
        for header, batch in reader.read(before.offset + 1, image.offset + 1):
            if not header.is_control:
                records = [
                    decode_record(each.value or b"") for each in decode_records(batch, header)
                ]
                before = self._batch(before, records, node.controller_settings)
        self._image = image

    def _batch(
        self, image: MetadataImage, records: list[Message], settings: ControllerSettings
    ) -> MetadataImage:
        after, _ = image.apply(records, image.offset, image.epoch, image.timestamp_ms)
        changed = {each.broker_id for each in records if isinstance(each, _OF_BROKERS)}
        registered = {each.broker_id for each in records if isinstance(each, RegisterBrokerRecord)}
        if any(isinstance(each, PartitionChangeRecord) for each in records):
            for record in records:
                if isinstance(record, PartitionChangeRecord):
                    rules = PartitionRules(image, settings)
                    self._look_at(image, record, _Batch(after, rules, changed, registered))
                image, _ = image.apply([record], image.offset, image.epoch, image.timestamp_ms)
        self._check_leaders(after)
        return after

    def _check_leaders(self, image: MetadataImage) -> None:
        """Nobody leads who is fenced. A cluster of one broker has nobody else."""
        fenced = {each.broker_id for each in image.brokers.values() if each.fenced}
        if not fenced or len(image.brokers) == 1:
            return
        for name, topic in image.topics_by_name.items():
            for row in topic.partitions:
                if row.leader in fenced:
                    self._problem(
                        f"{name}-{row.partition}: node {row.leader} leads in epoch "
                        f"{row.leader_epoch} and is fenced"
                    )

    # One record

    def _look_at(self, image: MetadataImage, record: PartitionChangeRecord, batch: _Batch) -> None:
        topic = image.topics_by_id[record.topic_id]
        before = topic.partitions[record.partition_id]
        key = topic.topic_id, before.partition
        at = key, before.leader, before.leader_epoch, before.partition_epoch
        change = _Change(
            topic, before, merge_partition(before, record), batch, self._proposals.get(at, [])
        )
        self._simulation.count("decisions about partitions")
        if topic.is_internal and change.is_growth:
            self._simulation.count("internal topics that grew")
        if change.is_unclean:
            self.unclean[key] = change.after.leader_epoch
        for wrong in (
            self._why_not_in_sync(change, image),
            self._why_not_leader(change, image),
            self._why_not_eligible(change),
        ):
            if wrong:
                self._problem(
                    f"{topic.name}-{before.partition}: {wrong}; in sync were {before.isr} and are "
                    f"{change.after.isr}, eligible {before.eligible_leader_replicas} and "
                    f"{change.after.eligible_leader_replicas}, of {change.after.replicas}, at "
                    f"leader epoch {before.leader_epoch} and partition epoch "
                    f"{before.partition_epoch}"
                )

    def _why_not_in_sync(self, change: _Change, image: MetadataImage) -> str | None:
        before, after = change.before, change.after
        added = set(after.isr) - set(before.isr)
        removed = set(before.isr) - set(after.isr)
        if not (added or removed) or change.is_unclean:
            return None
        found = [_why_not_taken_in(added, each, image) for each in change.carried_out()]
        if found:
            return None if None in found else found[-1]
        if added and not self._is_elected(change):
            return f"nobody who led has proposed to take in {sorted(added)}"
        wrong = [
            each
            for each in sorted(removed)
            if each in after.replicas and not _has_left(each, change, image)
        ]
        return f"nobody who led has proposed to leave out {wrong}" if wrong else None

    def _is_elected(self, change: _Change) -> bool:
        """Whether the controller itself may have made this set."""
        before, after = change.before, change.after
        if after.isr == (after.leader,) and after.leader in before.eligible_leader_replicas:
            return True
        # Without eligible leader replicas the set keeps somebody, whoever is taken away.
        has_eligible = change.batch.rules.has_eligible_replicas
        return not has_eligible and after.isr == after.replicas[:1]

    def _why_not_leader(self, change: _Change, image: MetadataImage) -> str | None:
        before, after = change.before, change.after
        if after.leader == NO_LEADER or after.leader_epoch == before.leader_epoch:
            return None
        leader = after.leader
        brokers = image.brokers.get(leader), change.batch.after.brokers.get(leader)
        if leader != before.leader and not any(each and each.is_active for each in brokers):
            return f"node {leader} was elected and is not active"
        if change.is_unclean:
            may_lose = change.batch.rules.of(change.topic.name).unclean_elections
            sound = {*before.isr, *before.eligible_leader_replicas} & {*after.replicas}
            was_last = before.last_known_elr == (leader,)
            was_last &= sound <= change.batch.registered_brokers
            if may_lose or was_last:
                return None
            return f"node {leader} was elected uncleanly, and the topic does not allow it"
        if leader in before.isr or leader in before.eligible_leader_replicas:
            return None
        if change.carried_out() and leader in after.isr:
            return None
        return f"node {leader} was elected, and neither was in sync nor eligible"

    def _why_not_eligible(self, change: _Change) -> str | None:
        before, after, rules = change.before, change.after, change.batch.rules
        if not rules.has_eligible_replicas or change.is_unclean:
            return None
        needed = min(rules.of(change.topic.name).min_insync_replicas, len(after.replicas))
        held = {*before.isr, *before.eligible_leader_replicas}
        holds = {*after.isr, *after.eligible_leader_replicas}
        invented = set(after.eligible_leader_replicas) - held
        if invented:
            return f"{sorted(invented)} are eligible to lead, and had not everything"
        if len(after.isr) >= needed:
            return None
        lost = (held - holds) & set(after.replicas) - change.batch.registered_brokers
        return f"{sorted(lost)} have everything and are not eligible to lead" if lost else None


def _why_not_taken_in(
    added: Iterable[int], proposal: IsrProposal, image: MetadataImage
) -> str | None:
    epochs: Mapping[int, int] = dict(zip(proposal.isr, proposal.broker_epochs, strict=True))
    for each in sorted(added):
        broker = image.brokers.get(each)
        if broker is None or not broker.is_active:
            return f"node {each} was taken in and is not active"
        if epochs[each] not in (UNKNOWN_BROKER_EPOCH, broker.epoch):
            return (
                f"node {each} was taken in at broker epoch {broker.epoch}, and the leader knew it "
                f"at {epochs[each]}"
            )
    return None


def _has_left(broker_id: int, change: _Change, image: MetadataImage) -> bool:
    """Whether a broker has given a reason to be left out."""
    broker: Any = image.brokers.get(broker_id)
    if broker is None or not broker.is_active or broker_id in change.batch.changed_brokers:
        return True
    row = change.after
    if not row.directories:
        return False
    directory = row.directories[row.replicas.index(broker_id)]
    return not is_online(directory, broker.log_dirs)
