"""Changes of one partition: who replicates it, who is in sync, who leads.

`PartitionChange` takes what is wanted and makes the record for it, or none when it changes nothing.
It keeps the rules that hold for every change: a finished reassignment is completed, the leader is
one of the in-sync replicas, and taking replicas away raises the leader epoch even when the leader
stays, so that the ones that left are fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from typing import NamedTuple

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.features import MV_ISR_SHRINK_KEEPS_EPOCH, MV_LOG_DIRECTORIES
from tidelog.cluster.metadata.image import (
    NO_LEADER,
    LeaderRecoveryState,
    MetadataImage,
    PartitionImage,
)
from tidelog.cluster.metadata.records.topics import PartitionChangeRecord
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message
from tidelog.protocol.uuids import ZERO_UUID


class Election(Enum):
    PREFERRED = 0  # the first replica, if it is in sync
    ONLINE = 1  # any in-sync replica; the leader of now stays if it can
    UNCLEAN = 2  # any live replica when none is in sync: records may be lost


def new_directories(image: MetadataImage, replicas: Sequence[int]) -> tuple[bytes, ...]:
    """The log directories of new replicas; none where the cluster's level does not know them."""
    if image.metadata_version < MV_LOG_DIRECTORIES:
        return ()
    return tuple(_default_directory(image, replica) for replica in replicas)


def _default_directory(image: MetadataImage, broker_id: int) -> bytes:
    """The broker's only directory, else its own choice."""
    broker = image.brokers.get(broker_id)
    if broker is None or len(broker.log_dirs) != 1:
        return ZERO_UUID
    return broker.log_dirs[0]


@dataclass(slots=True)
class PartitionChange:
    """A partition on its way to another state."""

    topic_id: bytes
    before: PartitionImage
    is_acceptable: Callable[[int], bool]  # may this broker lead?
    image: MetadataImage
    election: Election = Election.ONLINE
    replicas: tuple[int, ...] | None = None
    isr: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    recovery: int | None = None

    def record(self) -> PartitionChangeRecord | None:
        """The record that makes the change; None when there is nothing to change."""
        before = self.before
        replicas = before.replicas if self.replicas is None else self.replicas
        isr = before.isr if self.isr is None else self.isr
        removing = before.removing_replicas if self.removing is None else self.removing
        adding = before.adding_replicas if self.adding is None else self.adding
        if self._is_complete(isr, removing, adding):
            replicas = tuple(replica for replica in replicas if replica not in removing)
            isr = tuple(replica for replica in isr if replica not in removing)
            removing = adding = ()

        record = PartitionChangeRecord(partition_id=before.partition, topic_id=self.topic_id)
        leader, unclean = self._elect(replicas, isr)
        if unclean:
            isr = (leader,)
        if leader != before.leader:
            record.leader = leader
        elif not set(before.replicas) <= set(replicas) or self._shrink_raises_epoch(isr):
            record.leader = before.leader
        if isr and isr != before.isr:
            record.isr = list(isr)
        if replicas != before.replicas:
            record.replicas = list(replicas)
        directories = self._directories(replicas)
        if before.directories and directories != before.directories:
            record.directories = list(directories)
        if removing != before.removing_replicas:
            record.removing_replicas = list(removing)
        if adding != before.adding_replicas:
            record.adding_replicas = list(adding)
        recovery = LeaderRecoveryState.RECOVERING if unclean else self.recovery
        if recovery is not None and recovery != before.leader_recovery_state:
            record.leader_recovery_state = recovery
        nothing = PartitionChangeRecord(partition_id=before.partition, topic_id=self.topic_id)
        return None if record == nothing else record

    def _shrink_raises_epoch(self, isr: Sequence[int]) -> bool:
        """Brokers before 3.6 needed a new leader epoch for a smaller in-sync set (KAFKA-15021)."""
        if self.image.metadata_version >= MV_ISR_SHRINK_KEEPS_EPOCH:
            return False
        return bool(isr) and not set(self.before.isr) <= set(isr)

    @staticmethod
    def _is_complete(isr: Sequence[int], removing: Sequence[int], adding: Sequence[int]) -> bool:
        """Whether a reassignment is under way whose new replicas are all in sync."""
        if not removing and not adding:
            return False
        staying = set(isr) - set(removing)
        return bool(staying) and set(adding) <= staying

    def _elect(self, replicas: Sequence[int], isr: Sequence[int]) -> tuple[int, bool]:
        """The leader, and whether electing it may lose records."""

        def can_lead(replica: int) -> bool:
            return replica in isr and self.is_acceptable(replica)

        current = self.before.leader
        candidates = list(replicas)
        if self.election is Election.PREFERRED:
            preferred = candidates[0]
            if can_lead(preferred):
                return preferred, False
        if current in candidates and can_lead(current):
            return current, False
        for replica in candidates:
            if can_lead(replica):
                return replica, False
        if self.election is Election.UNCLEAN:
            for replica in candidates:
                if self.is_acceptable(replica):
                    return replica, True
        return NO_LEADER, False

    def _directories(self, replicas: Sequence[int]) -> tuple[bytes, ...]:
        known = dict(zip(self.before.replicas, self.before.directories, strict=False))
        return tuple(
            known[replica] if replica in known else _default_directory(self.image, replica)
            for replica in replicas
        )


class IsrChange(NamedTuple):
    """What a leader proposes: another in-sync set, seen at these epochs.

    `isr_epochs` are the epochs at which the leader knows the brokers of `isr`, if it knows them:
    -1 for any.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED
    isr_epochs: tuple[int, ...] = ()


class IsrRow(NamedTuple):
    change: IsrChange
    error: ApiError | None


def alter_partitions(
    changes: Sequence[IsrChange], broker_id: int, broker_epoch: int, image: MetadataImage
) -> Decision[list[IsrRow]]:
    """In-sync sets as the leader `broker_id` sees them, each checked against what is known."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH, f"{broker_epoch} is not the epoch of broker {broker_id}"
        )
    records: list[Message] = []
    rows = []
    for change in changes:
        try:
            record = _alter_partition(change, broker_id, image)
        except ApiError as error:
            rows.append(IsrRow(change, error))
            continue
        if record is not None:
            records.append(record)
        rows.append(IsrRow(change, None))
    return Decision(records, rows)


def _alter_partition(
    change: IsrChange, broker_id: int, image: MetadataImage
) -> PartitionChangeRecord | None:
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= change.partition < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[change.partition]
    # A leader that knows more than this image talks to a controller of the past.
    if change.leader_epoch > partition.leader_epoch:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    if change.partition_epoch > partition.partition_epoch:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    if change.leader_epoch < partition.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    if partition.leader != broker_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {broker_id} does not lead")
    if change.partition_epoch < partition.partition_epoch:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION)
    if broker_id not in change.isr or not set(change.isr) <= set(partition.replicas):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.isr} is no in-sync set")
    ineligible = [
        each
        for each, epoch in zip_longest(change.isr, change.isr_epochs, fillvalue=-1)
        if not is_active(image, each) or epoch not in (-1, image.brokers[each].epoch)
    ]
    if ineligible:
        raise ApiError(
            ErrorCode.INELIGIBLE_REPLICA, f"{ineligible} are fenced, shutting down or restarted"
        )
    return PartitionChange(
        topic.topic_id,
        partition,
        lambda replica: is_active(image, replica),
        image,
        isr=change.isr,
        recovery=change.leader_recovery_state,
    ).record()


def is_active(image: MetadataImage, broker_id: int) -> bool:
    """Whether the broker is registered, not fenced and not about to stop."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active
