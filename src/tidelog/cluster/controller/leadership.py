"""What becomes of partitions when a broker comes, goes, or comes back with a log that may lack
records.

Each function looks at every partition once, which costs less than a microsecond apiece, and makes a
change for those that the broker has a part in. An index from brokers to partitions would have to be
kept up with every change, to save that.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

from tidelog.cluster.controller.partition_changes import (
    PartitionChange,
    PartitionChanges,
    is_active,
)
from tidelog.cluster.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage


def all_partitions(image: MetadataImage) -> Iterator[tuple[TopicImage, PartitionImage]]:
    for topic in image.topics_by_name.values():
        for partition in topic.partitions:
            yield topic, partition


def leads_anything(broker_id: int, image: MetadataImage) -> bool:
    return any(partition.leader == broker_id for _, partition in all_partitions(image))


def broker_goes(broker_id: int, changes: PartitionChanges) -> None:
    """Takes a broker that stops or is gone out of leadership and in-sync sets."""
    broker_leaves(
        broker_id,
        (
            (topic, partition)
            for topic, partition in all_partitions(changes.rules.image)
            if broker_id in partition.isr or partition.leader == broker_id
        ),
        changes,
    )


def broker_leaves(
    broker_id: int,
    partitions: Iterable[tuple[TopicImage, PartitionImage]],
    changes: PartitionChanges,
) -> None:
    """Takes a broker out of leadership and in-sync sets of these partitions."""
    rules = changes.rules
    can_lead = _active_without(broker_id, rules.image)
    for topic, partition in partitions:
        changes.add(
            PartitionChange(
                topic,
                partition,
                rules,
                can_lead,
                rules.of(topic.name).election,
                isr=tuple(replica for replica in partition.isr if replica != broker_id),
            )
        )


def broker_lost_records(broker_id: int, changes: PartitionChanges) -> None:
    """Takes a broker that stopped uncleanly out of eligible leader replicas too: its log may lack
    what it had acknowledged."""
    rules = changes.rules
    can_lead = _active_without(broker_id, rules.image)
    for topic, partition in all_partitions(rules.image):
        if (
            broker_id in partition.isr
            or broker_id in partition.eligible_leader_replicas
            or partition.leader == broker_id
        ):
            changes.add(
                PartitionChange(
                    topic,
                    partition,
                    rules,
                    can_lead,
                    rules.of(topic.name).election,
                    isr=tuple(replica for replica in partition.isr if replica != broker_id),
                    unclean_shutdowns=(broker_id,),
                )
            )


def lone_broker_lost_records(broker_id: int, changes: PartitionChanges) -> None:
    """The only broker of a cluster stopped uncleanly. Nobody else can lead, so what it led it goes
    on to lead, at a new leader epoch by which readers notice."""

    def can_lead(replica: int) -> bool:
        return replica == broker_id

    for topic, partition in all_partitions(changes.rules.image):
        if partition.leader == broker_id:
            changes.add(PartitionChange(topic, partition, changes.rules, can_lead, new_epoch=True))


def broker_comes(broker_id: int, changes: PartitionChanges) -> None:
    """Lets a broker that came (back) lead the partitions that have no leader."""
    rules = changes.rules
    image = rules.image

    def can_lead(replica: int) -> bool:
        return replica == broker_id or is_active(image, replica)

    for topic, partition in all_partitions(image):
        if partition.leader == NO_LEADER and broker_id in partition.replicas:
            election = rules.of(topic.name).election
            changes.add(PartitionChange(topic, partition, rules, can_lead, election))


def _active_without(broker_id: int, image: MetadataImage) -> Callable[[int], bool]:
    active: Container[int] = {
        each.broker_id
        for each in image.brokers.values()
        if each.is_active and each.broker_id != broker_id
    }
    return active.__contains__
