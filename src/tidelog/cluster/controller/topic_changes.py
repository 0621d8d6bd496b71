"""Creating and deleting topics, and adding partitions to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision, check_partition_limit, check_record_limit
from tidelog.cluster.controller.log_directories import new_directories
from tidelog.cluster.controller.partition_changes import is_active
from tidelog.cluster.controller.placement import check_assignment, place_replicas
from tidelog.cluster.metadata.image import ConfigResourceType, MetadataImage, PartitionImage
from tidelog.cluster.metadata.image_records import partition_record
from tidelog.cluster.metadata.records.settings import ConfigRecord
from tidelog.cluster.metadata.records.topics import RemoveTopicRecord, TopicRecord
from tidelog.cluster.settings.topic_config import validate_topic_config
from tidelog.cluster.topic_names import (
    collision_key,
    has_collision_characters,
    validate_topic_name,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message
from tidelog.protocol.uuids import ZERO_UUID, format_uuid

# Takes a number of partitions that come or go; ApiError when a quota does not let them.
ChargePartitions = Callable[[int], None]


def charge_nobody(_partition_count: int) -> None:
    """For changes that no quota binds."""


DEFAULT = -1  # as partition count and replication factor: what the broker is set to


class NewTopic(NamedTuple):
    """A topic to create; `assignments` (partition id to replicas) replaces both counts."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Sequence[int]] = MappingProxyType({})
    configs: Mapping[str, str | None] = MappingProxyType({})


class CreatedTopic(NamedTuple):
    """A row of CreateTopics; without an error the rest says what the topic has become."""

    name: str
    error: ApiError | None
    topic_id: bytes = ZERO_UUID
    partition_count: int = -1
    replication_factor: int = -1


class TopicSelector(NamedTuple):
    """A topic by name or by id, never both."""

    name: str | None = None
    topic_id: bytes = ZERO_UUID


class DeletedTopic(NamedTuple):
    name: str | None
    topic_id: bytes
    error: ApiError | None


@dataclass(slots=True, frozen=True)
class PartitionAddition:
    """`count` is the number of partitions that the topic shall have."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


class TopicRow(NamedTuple):
    name: str
    error: ApiError | None


def create_topics(
    topics: Sequence[NewTopic],
    image: MetadataImage,
    settings: ControllerSettings,
    random: Random,
    new_id: Callable[[], bytes],
    *,
    validate_only: bool = False,
    charge: ChargePartitions = charge_nobody,
) -> Decision[list[CreatedTopic]]:
    """Creates the topics that can be created; a name that is given twice fails, once."""
    times = Counter(topic.name for topic in topics)
    taken: dict[str, str] = {}
    if any(has_collision_characters(topic.name) for topic in topics):
        taken = {
            collision_key(name): name
            for name in image.topics_by_name
            if has_collision_characters(name)
        }
    records: list[Message] = []
    rows: list[CreatedTopic] = []
    for topic in {topic.name: topic for topic in topics}.values():
        try:
            if times[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_name(topic.name, image, taken)
            new_records, row = _create_topic(topic, image, settings, random, new_id())
            check_record_limit(records + new_records)
            if not validate_only:
                charge(row.partition_count)
        except ApiError as error:
            rows.append(CreatedTopic(topic.name, error))
            continue
        if has_collision_characters(topic.name):
            taken[collision_key(topic.name)] = topic.name
        records += new_records
        rows.append(row)
    return Decision([] if validate_only else records, rows)


def _check_name(name: str, image: MetadataImage, taken: Mapping[str, str]) -> None:
    if name in image.topics_by_name:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    validate_topic_name(name)
    other = taken.get(collision_key(name)) if has_collision_characters(name) else None
    if other is not None:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def _create_topic(
    topic: NewTopic,
    image: MetadataImage,
    settings: ControllerSettings,
    random: Random,
    topic_id: bytes,
) -> tuple[list[Message], CreatedTopic]:
    configs = _checked_configs(topic.configs)
    replicas: Sequence[Sequence[int]]
    if topic.assignments:
        replicas = _manual_replicas(topic, image)
    else:
        replicas = _placed_replicas(topic, image, settings, random)
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(
            resource_type=ConfigResourceType.TOPIC,
            resource_name=topic.name,
            name=name,
            value=value,
        )
        for name, value in configs.items()
    ]
    records += [
        partition_record(topic_id, _new_partition(index, each, image))
        for index, each in enumerate(replicas)
    ]
    row = CreatedTopic(topic.name, None, topic_id, len(replicas), len(replicas[0]))
    return records, row


def _checked_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    without_value = [name for name, value in configs.items() if value is None]
    if without_value:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(without_value)}",
        )
    given = {name: value for name, value in configs.items() if value is not None}
    validate_topic_config(given)
    return given


def _manual_replicas(topic: NewTopic, image: MetadataImage) -> list[Sequence[int]]:
    for what, value in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.partition_count),
    ):
        if value != DEFAULT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    replication_factor: int | None = None
    for replicas in topic.assignments.values():
        check_assignment(replicas, image.brokers, replication_factor)
        replication_factor = len(replicas)
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [topic.assignments[index] for index in range(len(topic.assignments))]


def _placed_replicas(
    topic: NewTopic, image: MetadataImage, settings: ControllerSettings, random: Random
) -> list[list[int]]:
    if topic.replication_factor < DEFAULT or topic.replication_factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.partition_count < DEFAULT or topic.partition_count == 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    partition_count, replication_factor = topic.partition_count, topic.replication_factor
    if partition_count == DEFAULT:
        partition_count = settings.default_partition_count
    if replication_factor == DEFAULT:
        replication_factor = settings.default_replication_factor
    # Placing a hundred million partitions only to refuse them would take minutes.
    check_partition_limit(partition_count)
    return place_replicas(image.brokers.values(), partition_count, replication_factor, random)


def _new_partition(index: int, replicas: Sequence[int], image: MetadataImage) -> PartitionImage:
    isr = tuple(replica for replica in replicas if is_active(image, replica))
    if not isr:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} "
            "are fenced or in controlled shutdown.",
        )
    return PartitionImage(
        partition=index,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        replicas=tuple(replicas),
        isr=isr,
        directories=new_directories(image, replicas),
    )


def delete_topics(
    topics: Sequence[TopicSelector],
    image: MetadataImage,
    settings: ControllerSettings,
    *,
    charge: ChargePartitions = charge_nobody,
) -> Decision[list[DeletedTopic]]:
    """Deletes the topics that are there."""
    if not settings.delete_topic_enable:
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    times = Counter(_selected_id(topic, image) for topic in topics)
    records: list[Message] = []
    rows = []
    for topic in topics:
        try:
            name, topic_id = _find(topic, image)
            if times[topic_id] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
            charge(len(image.topics_by_id[topic_id].partitions))
        except ApiError as error:
            rows.append(DeletedTopic(topic.name, topic.topic_id, error))
            continue
        records.append(RemoveTopicRecord(topic_id=topic_id))
        rows.append(DeletedTopic(name, topic_id, None))
    check_record_limit(records)
    return Decision(records, rows)


def _selected_id(topic: TopicSelector, image: MetadataImage) -> bytes:
    if topic.name is not None and topic.name in image.topics_by_name:
        return image.topics_by_name[topic.name].topic_id
    return topic.topic_id


def _find(topic: TopicSelector, image: MetadataImage) -> tuple[str, bytes]:
    if topic.name is not None and topic.topic_id != ZERO_UUID:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if topic.name is not None:
        found = image.topics_by_name.get(topic.name)
        if found is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
    elif topic.topic_id == ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    else:
        found = image.topics_by_id.get(topic.topic_id)
        if found is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"This server does not host the topic with id {format_uuid(topic.topic_id)}.",
            )
    return found.name, found.topic_id


def create_partitions(
    additions: Sequence[PartitionAddition],
    image: MetadataImage,
    random: Random,
    *,
    validate_only: bool = False,
    charge: ChargePartitions = charge_nobody,
) -> Decision[list[TopicRow]]:
    """Adds partitions to topics; one row per topic, in the order of the request."""
    times = Counter(addition.name for addition in additions)
    records: list[Message] = []
    rows = []
    for addition in {addition.name: addition for addition in additions}.values():
        try:
            if times[addition.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            new_records = _add_partitions(addition, image, random)
            check_record_limit(records + new_records)
            if not validate_only:
                charge(len(new_records))
        except ApiError as error:
            rows.append(TopicRow(addition.name, error))
            continue
        records += new_records
        rows.append(TopicRow(addition.name, None))
    return Decision([] if validate_only else records, rows)


def _add_partitions(
    addition: PartitionAddition, image: MetadataImage, random: Random
) -> list[Message]:
    topic = image.topics_by_name.get(addition.name)
    if topic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    have = len(topic.partitions)
    if addition.count == have:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if addition.count < have:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {have} partition(s); "
            f"{addition.count} would not be an increase.",
        )
    additional = addition.count - have
    check_partition_limit(additional)
    replication_factor = len(topic.partitions[0].replicas)
    replicas: Sequence[Sequence[int]]
    if addition.assignments is None:
        replicas = place_replicas(image.brokers.values(), additional, replication_factor, random)
    elif len(addition.assignments) != additional:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(addition.assignments)} assignment(s) were specified.",
        )
    else:
        replicas = addition.assignments
        for each in replicas:
            check_assignment(each, image.brokers, replication_factor)
    return [
        partition_record(topic.topic_id, _new_partition(index, each, image))
        for index, each in enumerate(replicas, start=have)
    ]
