"""Moving partitions to other brokers.

A reassignment first adds the new replicas beside the old ones (`adding_replicas`,
`removing_replicas`); when the new ones are in sync, the old ones go. What needs no new replica
happens at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision, check_record_limit
from tidelog.cluster.controller.elections import PartitionRow
from tidelog.cluster.controller.partition_changes import PartitionChange, PartitionChanges
from tidelog.cluster.controller.placement import check_assignment
from tidelog.cluster.metadata.image import MetadataImage, PartitionImage
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition


class Reassignment(NamedTuple):
    """The wanted replicas; None cancels what is under way."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class OngoingReassignment(NamedTuple):
    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


def alter_partition_reassignments(
    reassignments: Sequence[Reassignment],
    image: MetadataImage,
    settings: ControllerSettings,
    *,
    allow_replication_factor_change: bool = True,
) -> Decision[list[PartitionRow]]:
    """Begins, changes and cancels reassignments."""
    changes = PartitionChanges(image, settings)
    rows = []
    seen: set[TopicPartition] = set()
    for wanted in reassignments:
        name = TopicPartition(wanted.topic, wanted.partition)
        try:
            if name in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
            seen.add(name)
            _reassign(wanted, changes, allow_replication_factor_change)
        except ApiError as error:
            rows.append(PartitionRow(wanted.topic, wanted.partition, error))
        else:
            rows.append(PartitionRow(wanted.topic, wanted.partition, None))
    check_record_limit(changes.records)
    return Decision(changes.records, rows, unclean_elections=changes.unclean_elections)


def _reassign(
    wanted: Reassignment, changes: PartitionChanges, allow_replication_factor_change: bool
) -> None:
    image = changes.rules.image
    topic = image.topics_by_name.get(wanted.topic)
    partition = image.partition(wanted.topic, wanted.partition)
    if topic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {wanted.topic}."
        )
    if partition is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {wanted.topic}:{wanted.partition}.",
        )
    change = PartitionChange(topic, partition, changes.rules)
    if wanted.replicas is None:
        _cancel(change, wanted, partition)
    else:
        check_assignment(wanted.replicas, image.brokers)
        staying = len(partition.replicas) - len(partition.removing_replicas)
        if not allow_replication_factor_change and len(wanted.replicas) != staying:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {staying} to {len(wanted.replicas)}",
            )
        _begin(change, wanted.replicas, partition)
    changes.add(change)


def _begin(change: PartitionChange, target: Sequence[int], partition: PartitionImage) -> None:
    removing = tuple(sorted(set(partition.replicas) - set(target)))
    adding = set(target) - set(partition.replicas)
    # Replicas that an earlier reassignment was still adding may not be in sync yet either.
    adding |= set(target) & set(partition.adding_replicas)
    change.adding = tuple(sorted(adding))
    change.removing = removing
    change.replicas = (*target, *removing)


def _cancel(change: PartitionChange, wanted: Reassignment, partition: PartitionImage) -> None:
    if not partition.is_reassigning:
        raise ApiError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
        )
    rules = change.rules.of(wanted.topic)
    adding = set(partition.adding_replicas)
    change.replicas = tuple(each for each in partition.replicas if each not in adding)
    change.removing = change.adding = ()
    change.isr = tuple(each for each in partition.isr if each not in adding)
    change.election = rules.election
    if not change.isr and not rules.unclean_elections:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {wanted.topic}:{wanted.partition} "
            "because it would require an unclean leader election.",
        )


def list_reassignments(
    image: MetadataImage, partitions: Iterable[TopicPartition] | None = None
) -> list[OngoingReassignment]:
    """The reassignments under way, of these partitions or of all."""
    if partitions is None:
        partitions = (
            TopicPartition(topic.name, partition.partition)
            for topic in image.topics_by_name.values()
            for partition in topic.partitions
        )
    ongoing = []
    for topic, index in partitions:
        partition = image.partition(topic, index)
        if partition is not None and partition.is_reassigning:
            ongoing.append(
                OngoingReassignment(
                    topic,
                    index,
                    partition.replicas,
                    partition.adding_replicas,
                    partition.removing_replicas,
                )
            )
    return ongoing
