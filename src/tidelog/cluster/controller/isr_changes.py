"""In-sync sets as leaders propose them (AlterPartition).

The checks stand in Kafka's order, for leaders act on the error: one that knows more than this image
talks to a controller of the past, and must not take that for a reason to give up leadership.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.partition_changes import PartitionChange, PartitionChanges
from tidelog.cluster.controller.registered_brokers import check_broker_epoch
from tidelog.cluster.metadata.image import (
    LeaderRecoveryState,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from tidelog.cluster.metadata.image_changes import merge_partition
from tidelog.cluster.metadata.records.topics import NO_LEADER_CHANGE
from tidelog.protocol.errors import ApiError, ErrorCode


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
    """`after` is the partition with the change; None with an error."""

    change: IsrChange
    error: ApiError | None
    after: PartitionImage | None = None


def alter_partitions(
    proposed: Sequence[IsrChange],
    broker_id: int,
    broker_epoch: int,
    image: MetadataImage,
    settings: ControllerSettings,
) -> Decision[list[IsrRow]]:
    """In-sync sets as the leader `broker_id` sees them, each checked against what is known.

    A row can have both a record and an error: NEW_LEADER_ELECTED when the change ends a
    reassignment that takes the leader away.
    """
    check_broker_epoch(broker_id, broker_epoch, image)
    changes = PartitionChanges(image, settings)
    rows = []
    seen: set[tuple[bytes, int]] = set()
    for change in proposed:
        try:
            topic, partition = _checked(change, broker_id, image)
            if (change.topic_id, change.partition) in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
            seen.add((change.topic_id, change.partition))
            after = _alter(change, topic, partition, broker_id, changes)
        except ApiError as error:
            rows.append(IsrRow(change, error))
        else:
            rows.append(IsrRow(change, None, after))
    return Decision(changes.records, rows, unclean_elections=changes.unclean_elections)


def _alter(
    change: IsrChange,
    topic: TopicImage,
    partition: PartitionImage,
    broker_id: int,
    changes: PartitionChanges,
) -> PartitionImage:
    record = changes.add(
        PartitionChange(
            topic,
            partition,
            changes.rules,
            election=changes.rules.of(topic.name).election,
            isr=change.isr,
            recovery=change.leader_recovery_state,
        )
    )
    if record is None:
        return partition
    if record.leader not in (broker_id, NO_LEADER_CHANGE):
        raise ApiError(
            ErrorCode.NEW_LEADER_ELECTED, "The end of the reassignment elected another leader."
        )
    return merge_partition(partition, record)


def _checked(
    change: IsrChange, broker_id: int, image: MetadataImage
) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= change.partition < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[change.partition]
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
    _check_isr(change, partition, broker_id)
    ineligible = [
        f"{each} ({reason})"
        for each, epoch in zip_longest(change.isr, change.isr_epochs, fillvalue=-1)
        if (reason := _why_ineligible(each, epoch, image)) is not None
    ]
    if ineligible:
        raise ApiError(
            ErrorCode.INELIGIBLE_REPLICA, f"not eligible to be in sync: {', '.join(ineligible)}"
        )
    return topic, partition


def _check_isr(change: IsrChange, partition: PartitionImage, broker_id: int) -> None:
    members = set(change.isr)
    if len(members) < len(change.isr) or not members <= set(partition.replicas):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{list(change.isr)} are not some of the replicas {list(partition.replicas)}",
        )
    if broker_id not in members:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the leader is not in {list(change.isr)}")
    recovery = change.leader_recovery_state
    if recovery not in tuple(LeaderRecoveryState):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no leader recovery state {recovery}")
    if recovery == LeaderRecoveryState.RECOVERING:
        if len(members) > 1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "only the leader is in sync while it is recovering"
            )
        if partition.leader_recovery_state == LeaderRecoveryState.RECOVERED:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a leader that has recovered stays recovered")


def _why_ineligible(broker_id: int, epoch: int, image: MetadataImage) -> str | None:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return "not registered"
    if broker.in_controlled_shutdown:
        return "shutting down"
    if broker.fenced:
        return "fenced"
    if epoch not in (-1, broker.epoch):
        return f"broker epoch {epoch} is not {broker.epoch}"
    return None
