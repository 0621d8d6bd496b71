"""Leader elections: on request, and because a broker came or went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision, check_record_limit
from tidelog.cluster.controller.partition_changes import Election, PartitionChange, is_active
from tidelog.cluster.metadata.image import NO_LEADER, MetadataImage, TopicImage
from tidelog.cluster.metadata.records.topics import PartitionChangeRecord
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1


class PartitionRow(NamedTuple):
    topic: str
    partition: int
    error: ApiError | None


def elect_leaders(
    election_type: int, partitions: Sequence[TopicPartition] | None, image: MetadataImage
) -> Decision[list[PartitionRow]]:
    """Elects leaders for these partitions, or (None) wherever an election changes something."""
    if election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no election type {election_type}")
    records: list[Message] = []
    rows = []
    for topic, partition in _all_partitions(image) if partitions is None else partitions:
        try:
            records.append(_elect(topic, partition, election_type, image))
        except ApiError as error:
            if partitions is not None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                rows.append(PartitionRow(topic, partition, error))
        else:
            rows.append(PartitionRow(topic, partition, None))
    check_record_limit(records)
    return Decision(records, rows)


def _all_partitions(image: MetadataImage) -> Iterator[TopicPartition]:
    for topic in image.topics_by_name.values():
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition)


def _elect(
    topic_name: str, index: int, election_type: int, image: MetadataImage
) -> PartitionChangeRecord:
    topic = image.topics_by_name.get(topic_name)
    partition = image.partition(topic_name, index)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic_name}")
    if partition is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic_name}-{index}"
        )
    preferred = election_type == PREFERRED_ELECTION
    has_wanted_leader = (
        partition.leader == partition.preferred_leader
        if preferred
        else partition.leader != NO_LEADER
    )
    if has_wanted_leader:
        raise ApiError(
            ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        )
    record = PartitionChange(
        topic.topic_id,
        partition,
        lambda replica: is_active(image, replica),
        image,
        Election.PREFERRED if preferred else Election.UNCLEAN,
    ).record()
    if record is None or (preferred and record.leader != partition.preferred_leader):
        if preferred:
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                "The preferred leader was not available.",
            )
        raise ApiError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )
    return record


def remove_broker(
    broker_id: int, image: MetadataImage, settings: ControllerSettings
) -> list[Message]:
    """Takes a broker that stops or is gone out of leadership and in-sync sets.

    The last in-sync replica stays in the set even when it is gone: only it has everything.
    """

    def can_lead(replica: int) -> bool:
        return replica != broker_id and is_active(image, replica)

    return list(_broker_changes(broker_id, image, settings, can_lead, leaving=True))


def add_broker(broker_id: int, image: MetadataImage, settings: ControllerSettings) -> list[Message]:
    """Lets a broker that came (back) lead the partitions that have no leader."""

    def can_lead(replica: int) -> bool:
        return replica == broker_id or is_active(image, replica)

    return list(_broker_changes(broker_id, image, settings, can_lead, leaving=False))


def _broker_changes(
    broker_id: int,
    image: MetadataImage,
    settings: ControllerSettings,
    can_lead: Callable[[int], bool],
    *,
    leaving: bool,
) -> Iterator[Message]:
    for topic in image.topics_by_name.values():
        election: Election | None = None
        for partition in topic.partitions:
            if broker_id not in partition.replicas:
                continue
            if not leaving and partition.leader != NO_LEADER:
                continue
            if leaving and broker_id not in partition.isr and partition.leader != broker_id:
                continue
            election = election or _election_for(topic, image, settings)
            isr = partition.isr
            if leaving:
                isr = tuple(replica for replica in isr if replica != broker_id) or isr
            change = PartitionChange(topic.topic_id, partition, can_lead, image, election, isr=isr)
            record = change.record()
            if record is not None:
                yield record


def _election_for(
    topic: TopicImage, image: MetadataImage, settings: ControllerSettings
) -> Election:
    unclean = settings.topic_setting(image, topic.name, "unclean.leader.election.enable")
    return Election.UNCLEAN if unclean.lower() == "true" else Election.ONLINE
