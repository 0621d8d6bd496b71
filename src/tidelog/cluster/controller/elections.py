"""Leader elections on request, and those that the controller holds from time to time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.cluster.controller.broker_heartbeats import BrokerHeartbeats
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision, check_record_limit
from tidelog.cluster.controller.leadership import all_partitions
from tidelog.cluster.controller.partition_changes import (
    Election,
    PartitionChange,
    PartitionChanges,
)
from tidelog.cluster.metadata.image import NO_LEADER, MetadataImage
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1

# So many elections are one decision; the next ones wait until it is committed.
ELECTIONS_PER_RUN_MAX = 1000


class PartitionRow(NamedTuple):
    topic: str
    partition: int
    error: ApiError | None


def elect_leaders(
    election_type: int,
    partitions: Sequence[TopicPartition] | None,
    image: MetadataImage,
    settings: ControllerSettings,
    heartbeats: BrokerHeartbeats | None = None,
) -> Decision[list[PartitionRow]]:
    """Elects leaders for these partitions, or (None) wherever an election changes something.

    A preferred leader that lacks room, as `heartbeats` know, is not available.
    """
    if election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no election type {election_type}")
    changes = PartitionChanges(image, settings, heartbeats)
    rows = []
    for name, index in _all_names(image) if partitions is None else partitions:
        try:
            _elect(name, index, election_type, changes)
        except ApiError as error:
            if partitions is not None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                rows.append(PartitionRow(name, index, error))
        else:
            rows.append(PartitionRow(name, index, None))
    check_record_limit(changes.records)
    return Decision(changes.records, rows, unclean_elections=changes.unclean_elections)


def _all_names(image: MetadataImage) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.partition)
        for topic, partition in all_partitions(image)
    ]


def _elect(topic_name: str, index: int, election_type: int, changes: PartitionChanges) -> None:
    image = changes.rules.image
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
    election = Election.PREFERRED if preferred else Election.UNCLEAN
    change = PartitionChange(topic, partition, changes.rules, election=election)
    record = change.record()
    if preferred and (record is None or record.leader != partition.preferred_leader):
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
        )
    if record is None or record.leader < 0:
        raise ApiError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )
    changes.take(change, record)


def balance_leaders(
    image: MetadataImage,
    settings: ControllerSettings,
    heartbeats: BrokerHeartbeats | None = None,
    *,
    elections_max: int = ELECTIONS_PER_RUN_MAX,
) -> Decision[bool]:
    """Gives leadership back to preferred leaders that are in sync and have room.

    The result says whether there may be more to do than one decision holds.
    """
    changes = PartitionChanges(image, settings, heartbeats)
    for topic, partition in all_partitions(image):
        if partition.leader == partition.preferred_leader:
            continue
        if len(changes.records) >= elections_max:
            return _run(changes, is_done=False)
        changes.add(PartitionChange(topic, partition, changes.rules, election=Election.PREFERRED))
    return _run(changes, is_done=True)


def elect_unclean_leaders(
    image: MetadataImage,
    settings: ControllerSettings,
    *,
    elections_max: int = ELECTIONS_PER_RUN_MAX,
) -> Decision[bool]:
    """Elects leaders for partitions that have none, where the topic allows to lose records.

    The result says whether there may be more to do than one decision holds.
    """
    changes = PartitionChanges(image, settings)
    for topic, partition in all_partitions(image):
        if partition.leader != NO_LEADER or not changes.rules.of(topic.name).unclean_elections:
            continue
        if len(changes.records) >= elections_max:
            return _run(changes, is_done=False)
        changes.add(PartitionChange(topic, partition, changes.rules, election=Election.UNCLEAN))
    return _run(changes, is_done=True)


def _run(changes: PartitionChanges, *, is_done: bool) -> Decision[bool]:
    return Decision(changes.records, not is_done, unclean_elections=changes.unclean_elections)
