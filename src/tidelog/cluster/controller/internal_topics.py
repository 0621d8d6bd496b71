"""More replicas for the coordinators' topics when brokers join.

The first group or transaction makes such a topic, often on the first node of a cluster that is yet
to grow, or while a node is away: with as many replicas as there are brokers then. It is given the
others when there are brokers for them, so that the loss of one node stops no group. Where the
operator has set a replication factor, that holds.
"""

from __future__ import annotations

from collections import Counter

from tidelog.cluster.controller.config_changes import MIN_INSYNC_REPLICAS
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.partition_changes import PartitionChange, PartitionChanges
from tidelog.cluster.controller.placement import can_hold_replicas
from tidelog.cluster.metadata.image import (
    BrokerImage,
    ConfigResourceType,
    MetadataDelta,
    MetadataImage,
    TopicImage,
)
from tidelog.cluster.metadata.records.settings import ConfigRecord
from tidelog.cluster.settings.broker_config import BROKER_SETTINGS
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.protocol.schema import Message

_REPLICATION_FACTORS = {
    CONSUMER_OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
}
_TRANSACTION_STATE_MIN_ISR = "transaction.state.log.min.isr"


def grow_internal_topics(image: MetadataImage, settings: ControllerSettings) -> Decision[None]:
    """Begins to add the replicas that internal topics lack."""
    brokers = [
        each for each in image.brokers.values() if each.is_active and can_hold_replicas(each)
    ]
    records: list[Message] = []
    for name, setting in _REPLICATION_FACTORS.items():
        topic = image.topics_by_name.get(name)
        if topic is None or setting in settings.broker_config:
            continue
        wanted = min(_default(setting), len(brokers))
        added = _add_replicas(topic, wanted, brokers, image, settings)
        if added and name == TRANSACTION_STATE_TOPIC:
            records += _raise_min_isr(topic, wanted, image, settings)
        records += added
    return Decision(records, None)


def may_grow(delta: MetadataDelta) -> bool:
    """Whether a change can mean that there is something to add: brokers that come, and replicas
    that have been added, for partitions are left alone until then. Not when replicas were taken
    away: an operator who drains a broker does not want them back there."""
    return bool(delta.brokers) or any(
        after.name in _REPLICATION_FACTORS
        and any(
            old.is_reassigning and not new.is_reassigning and not old.removing_replicas
            for old, new in zip(before.partitions, after.partitions, strict=False)
        )
        for before, after in delta.changed_topics
    )


def _default(setting: str) -> int:
    return int(BROKER_SETTINGS[setting].default or 1)


def _add_replicas(
    topic: TopicImage,
    wanted: int,
    brokers: list[BrokerImage],
    image: MetadataImage,
    settings: ControllerSettings,
) -> list[Message]:
    changes = PartitionChanges(image, settings)
    load = Counter(replica for partition in topic.partitions for replica in partition.replicas)
    for partition in topic.partitions:
        if partition.is_reassigning:
            continue
        replicas = list(partition.replicas)
        while len(replicas) < wanted:
            racks = {
                image.brokers[replica].rack for replica in replicas if replica in image.brokers
            }
            free = [each for each in brokers if each.broker_id not in replicas]
            if not free:
                break
            chosen = min(
                free,
                key=lambda each: (each.rack in racks, load[each.broker_id], each.broker_id),
            )
            replicas.append(chosen.broker_id)
            load[chosen.broker_id] += 1
        change = PartitionChange(topic, partition, changes.rules)
        change.adding = tuple(sorted(set(replicas) - set(partition.replicas)))
        change.replicas = tuple(replicas)
        changes.add(change)
    return changes.records


def _raise_min_isr(
    topic: TopicImage, replicas: int, image: MetadataImage, settings: ControllerSettings
) -> list[Message]:
    """The topic was made with a minimum for fewer replicas."""
    if _TRANSACTION_STATE_MIN_ISR in settings.broker_config:
        return []
    wanted = min(_default(_TRANSACTION_STATE_MIN_ISR), replicas)
    if int(image.topic_configs(topic.name).get(MIN_INSYNC_REPLICAS, wanted)) >= wanted:
        return []
    return [
        ConfigRecord(
            resource_type=ConfigResourceType.TOPIC,
            resource_name=topic.name,
            name=MIN_INSYNC_REPLICAS,
            value=str(wanted),
        )
    ]
