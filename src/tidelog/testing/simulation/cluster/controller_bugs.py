"""Deliberate mistakes in the quorum's members, the controller and what brokers tell it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidelog.cluster.controller import (
    isr_changes,
    leadership,
    producer_ids,
)
from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.isr_changes import IsrChange
from tidelog.cluster.controller.partition_changes import (
    Elected,
    Election,
    PartitionChange,
    PartitionChanges,
    TopicRules,
)
from tidelog.cluster.controller.producer_ids import ProducerIdBlock
from tidelog.cluster.metadata import image_changes
from tidelog.cluster.metadata.image import MetadataImage, PartitionImage, TopicImage
from tidelog.cluster.metadata.metadata_log import MetadataLog
from tidelog.cluster.metadata.quorum_member import QuorumMember
from tidelog.protocol.errors import ApiError
from tidelog.raft.outputs import Persist
from tidelog.server.controller import broker_requests
from tidelog.testing.simulation.planting import Plantation, replaced

CONTROLLER_BUGS = Plantation()


# The quorum


@CONTROLLER_BUGS.plant
def vote_without_persisting() -> Iterator[None]:
    """Votes and epochs of the quorum are not written down."""

    def persist(self: QuorumMember, output: Persist) -> None:
        def persisted(_: object, error: OSError | None) -> None:
            self.replica.persisted(self._now_ms())

        self._submit(lambda: None, persisted)

    with replaced(QuorumMember, "_persist", persist):
        yield


@CONTROLLER_BUGS.plant
def publish_before_the_commit() -> Iterator[None]:
    """A controller's own image has a change as soon as it is proposed."""
    propose = MetadataLog.propose

    def publish(self: MetadataLog, *arguments: Any, **options: Any) -> Any:
        proposal = propose(self, *arguments, **options)
        if proposal.values:
            self._publish(proposal.after, proposal.delta)
        return proposal

    with replaced(MetadataLog, "propose", publish):
        yield


@CONTROLLER_BUGS.plant
def keep_what_did_not_commit() -> Iterator[None]:
    """Decisions go on from a change that has failed."""
    fail_waiting = MetadataLog._fail_waiting

    def stubborn(self: MetadataLog, error: ApiError) -> None:
        latest = self.latest
        fail_waiting(self, error)
        self.latest = latest

    with replaced(MetadataLog, "_fail_waiting", stubborn):
        yield


@CONTROLLER_BUGS.plant
def follow_the_metadata_before_the_commit() -> Iterator[None]:
    """Who follows the quorum's leader goes by everything that it has in its log."""
    committed = MetadataLog.committed

    def go_ahead(self: MetadataLog, high_watermark: int) -> None:
        committed(self, high_watermark if self.is_active else self.log.log_end_offset)

    with replaced(MetadataLog, "committed", go_ahead):
        yield


# In-sync sets


@CONTROLLER_BUGS.plant
def accept_isr_changes_at_old_partition_epochs() -> Iterator[None]:
    """An in-sync set is taken from its leader though the partition has changed since."""
    check = isr_changes._checked

    def lenient(
        change: IsrChange, broker_id: int, image: MetadataImage
    ) -> tuple[TopicImage, PartitionImage]:
        row = _row(change, image)
        if row is not None and change.partition_epoch < row.partition_epoch:
            change = change._replace(partition_epoch=row.partition_epoch)
        return check(change, broker_id, image)

    with replaced(isr_changes, "_checked", lenient):
        yield


@CONTROLLER_BUGS.plant
def accept_isr_changes_of_leaders_before() -> Iterator[None]:
    """An in-sync set is taken from a node though another one leads by now."""
    check = isr_changes._checked

    def lenient(
        change: IsrChange, broker_id: int, image: MetadataImage
    ) -> tuple[TopicImage, PartitionImage]:
        row = _row(change, image)
        if row is not None and change.leader_epoch < row.leader_epoch:
            change = change._replace(
                leader_epoch=row.leader_epoch, partition_epoch=row.partition_epoch
            )
            broker_id = row.leader
        return check(change, broker_id, image)

    with replaced(isr_changes, "_checked", lenient):
        yield


def _row(change: IsrChange, image: MetadataImage) -> PartitionImage | None:
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None or change.partition >= len(topic.partitions):
        return None
    return topic.partitions[change.partition]


@CONTROLLER_BUGS.plant
def forget_eligible_leader_replicas() -> Iterator[None]:
    """Who leaves the in-sync set while too few are left is not eligible to lead."""
    eligible = PartitionChange._eligible

    def nobody(
        self: PartitionChange, replicas: Sequence[int], isr: Sequence[int]
    ) -> tuple[int, ...]:
        now = eligible(self, replicas, isr)
        return tuple(each for each in now if each in self.before.eligible_leader_replicas)

    with replaced(PartitionChange, "_eligible", nobody):
        yield


@CONTROLLER_BUGS.plant
def keep_eligible_leader_replicas() -> Iterator[None]:
    """Who once was eligible to lead stays so, though others have committed more since."""
    eligible = PartitionChange._eligible

    def ever(self: PartitionChange, replicas: Sequence[int], isr: Sequence[int]) -> tuple[int, ...]:
        now = eligible(self, replicas, isr)
        stay = {*now, *self.before.eligible_leader_replicas} - {*isr}
        return tuple(sorted(stay & {*replicas}))

    with replaced(PartitionChange, "_eligible", ever):
        yield


# Elections


@CONTROLLER_BUGS.plant
def elect_outside_the_in_sync_set() -> Iterator[None]:
    """The controller lets any replica lead that is alive."""
    elect = PartitionChange._elect

    def elect_anybody(
        self: PartitionChange, replicas: Sequence[int], isr: Sequence[int], elr: Sequence[int]
    ) -> Elected:
        return elect(self, replicas, replicas, elr)

    with replaced(PartitionChange, "_elect", elect_anybody):
        yield


@CONTROLLER_BUGS.plant
def elect_fenced_brokers() -> Iterator[None]:
    """A replica that has everything leads, whether its broker is alive or not."""

    def is_registered(self: PartitionChange, replica: int) -> bool:
        return replica in self.rules.image.brokers

    with replaced(PartitionChange, "_is_acceptable", is_registered):
        yield


@CONTROLLER_BUGS.plant
def elect_uncleanly_unasked() -> Iterator[None]:
    """When no in-sync replica is alive another one leads, though the topic does not allow it."""
    with replaced(TopicRules, "election", property(lambda self: Election.UNCLEAN)):
        yield


@CONTROLLER_BUGS.plant
def elect_without_a_new_epoch() -> Iterator[None]:
    """Another replica leads a partition at the leader epoch of the one before."""
    merge = image_changes.merge_partition

    def keep_epoch(before: PartitionImage, record: Any) -> PartitionImage:
        return replace_epoch(merge(before, record), before.leader_epoch)

    with (
        replaced(image_changes, "merge_partition", keep_epoch),
        replaced(isr_changes, "merge_partition", keep_epoch),
    ):
        yield


def replace_epoch(image: PartitionImage, leader_epoch: int) -> PartitionImage:
    return image._replace(leader_epoch=leader_epoch)


@CONTROLLER_BUGS.plant
def leave_partitions_of_a_broker_that_goes() -> Iterator[None]:
    """A broker that is fenced or stops keeps what it leads."""

    def nothing(broker_id: int, partitions: Any, changes: PartitionChanges) -> None:
        pass

    with replaced(leadership, "broker_leaves", nothing):
        yield


@CONTROLLER_BUGS.plant
def leave_partitions_without_a_leader() -> Iterator[None]:
    """A broker that comes back does not lead what has waited for it."""
    from tidelog.cluster.controller import broker_lifecycle

    with replaced(broker_lifecycle, "broker_comes", lambda broker_id, changes: None):
        yield


# Brokers


@CONTROLLER_BUGS.plant
def let_sessions_last_for_ever() -> Iterator[None]:
    """A broker that is not heard of any more is not fenced."""

    def nobody(self: BrokerHeartbeats, image: MetadataImage, now_ms: int) -> None:
        return None

    with replaced(BrokerHeartbeats, "expired", nobody):
        yield


@CONTROLLER_BUGS.plant
def hand_out_producer_ids_twice() -> Iterator[None]:
    """Two brokers are given the same block of producer ids."""
    allocate = producer_ids.allocate_producer_ids

    def allocate_again(
        broker_id: int, broker_epoch: int, image: MetadataImage
    ) -> Decision[ProducerIdBlock]:
        before = max(image.next_producer_id - 1000, 0)
        if image.next_producer_id:
            decision = allocate(broker_id, broker_epoch, image)
            return Decision(decision.records, ProducerIdBlock(before, 1000))
        return allocate(broker_id, broker_epoch, image)

    with replaced(broker_requests, "allocate_producer_ids", allocate_again):
        yield
