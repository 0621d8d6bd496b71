"""Log directories that fail, are full or are cordoned, and replicas that are put into them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.leadership import all_partitions, broker_leaves
from tidelog.cluster.controller.partition_changes import PartitionChange, PartitionChanges
from tidelog.cluster.controller.registered_brokers import check_broker_epoch
from tidelog.cluster.directory_ids import is_online
from tidelog.cluster.features import MV_CORDONED_LOG_DIRECTORIES, MV_LOG_DIRECTORIES
from tidelog.cluster.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from tidelog.cluster.metadata.records.brokers import BrokerRegistrationChangeRecord
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import Message


def directories_failed(
    broker: BrokerImage, offline: Sequence[bytes], changes: PartitionChanges
) -> None:
    """Takes the broker out of leadership and in-sync sets of what was in these directories."""
    image = changes.rules.image
    failed = [directory for directory in broker.log_dirs if directory in offline]
    if not failed or image.metadata_version < MV_LOG_DIRECTORIES:
        return
    broker_leaves(
        broker.broker_id,
        (
            (topic, partition)
            for topic, partition in all_partitions(image)
            if partition.directory_of(broker.broker_id) in failed
        ),
        changes,
    )
    online = [directory for directory in broker.log_dirs if directory not in offline]
    # A broker without any directory stops, and an empty list would mean no change.
    if online:
        changes.records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=online
            )
        )


def leave_full_directories(broker: BrokerImage, changes: PartitionChanges) -> None:
    """Has others lead what the broker leads and cannot append to, where one in sync has room.

    The broker stays in sync until it lags behind the new leader, and is again when it has room.
    """
    rules = changes.rules
    for topic, partition in all_partitions(rules.image):
        if partition.leader == broker.broker_id and rules.lacks_room(partition, broker):
            changes.add(PartitionChange(topic, partition, rules))


def directories_cordoned(
    broker: BrokerImage, cordoned: Sequence[bytes] | None, image: MetadataImage
) -> list[Message]:
    """New replicas stay away from these directories; None where the broker does not know yet."""
    if cordoned is None or image.metadata_version < MV_CORDONED_LOG_DIRECTORIES:
        return []
    before = broker.cordoned_log_dirs
    if before is not None and set(before) == set(cordoned):
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.epoch,
            cordoned_log_dirs=list(cordoned),
        )
    ]


class DirectoryAssignment(NamedTuple):
    """The replica of the broker that asks is in this directory."""

    directory: bytes
    topic_id: bytes
    partition: int


class AssignmentRow(NamedTuple):
    assignment: DirectoryAssignment
    error: ApiError | None


def assign_replicas_to_dirs(
    assignments: Sequence[DirectoryAssignment],
    broker_id: int,
    broker_epoch: int,
    image: MetadataImage,
    settings: ControllerSettings,
) -> Decision[list[AssignmentRow]]:
    """A broker tells in which directories its replicas are.

    One that it put into a directory that is offline by now leaves leadership and in-sync set.
    """
    if image.metadata_version < MV_LOG_DIRECTORIES:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = check_broker_epoch(broker_id, broker_epoch, image)
    changes = PartitionChanges(image, settings)
    rows = []
    # The last one counts where a replica is named more than once.
    wanted: dict[tuple[bytes, int], DirectoryAssignment] = {}
    for assignment in assignments:
        try:
            _check_assignment(assignment, broker_id, image)
        except ApiError as error:
            rows.append(AssignmentRow(assignment, error))
        else:
            wanted[assignment.topic_id, assignment.partition] = assignment
            rows.append(AssignmentRow(assignment, None))
    for (topic_id, index), assignment in wanted.items():
        topic = image.topics_by_id[topic_id]
        _assign(assignment.directory, broker, topic, topic.partitions[index], changes)
    return Decision(changes.records, rows, unclean_elections=changes.unclean_elections)


def _check_assignment(
    assignment: DirectoryAssignment, broker_id: int, image: MetadataImage
) -> None:
    topic = image.topics_by_id.get(assignment.topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= assignment.partition < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in topic.partitions[assignment.partition].replicas:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _assign(
    directory: bytes,
    broker: BrokerImage,
    topic: TopicImage,
    partition: PartitionImage,
    changes: PartitionChanges,
) -> None:
    rules, broker_id = changes.rules, broker.broker_id
    change = PartitionChange(topic, partition, rules, directories={broker_id: directory})
    if not is_online(directory, broker.log_dirs):
        image = rules.image
        change.can_lead = lambda replica: (
            replica != broker_id
            and (other := image.brokers.get(replica)) is not None
            and other.is_active
        )
        change.election = rules.of(topic.name).election
        change.isr = tuple(replica for replica in partition.isr if replica != broker_id)
    changes.add(change)
