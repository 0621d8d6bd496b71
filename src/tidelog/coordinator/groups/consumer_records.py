"""The records that change a group of the consumer protocol."""

from __future__ import annotations

from tidelog.coordinator.groups.assignors import Assignment
from tidelog.coordinator.groups.consumer_group import ConsumerGroup, ResolvedRegex
from tidelog.coordinator.groups.consumer_member import ConsumerMember, to_rows
from tidelog.coordinator.records.group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidelog.coordinator.shard import CoordinatorRecord


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def assignment_epoch_record(group_id: str, epoch: int, computed_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=computed_ms
        ),
    )


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return CoordinatorRecord(key, member.metadata_value())


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=to_rows(target)),
    )


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return CoordinatorRecord(key, member.current_value())


def regex_record(
    group_id: str, expression: str, resolved: ResolvedRegex | None
) -> CoordinatorRecord:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression)
    if resolved is None:
        return CoordinatorRecord(key, None)
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics),
        version=resolved.version,
        timestamp=resolved.resolved_at_ms,
    )
    return CoordinatorRecord(key, value)


def remove_member_records(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """In this order: what it owns goes first, so that no record speaks of a member unknown."""
    ids = {"group_id": group_id, "member_id": member_id}
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(**ids), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(**ids), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(**ids), None),
    ]


def remove_group_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    group_id = group.group_id
    records = []
    for member_id in group.members:
        records += remove_member_records(group_id, member_id)
    records += [
        CoordinatorRecord(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=m), None
        )
        for m in group.target
        if m not in group.members
    ]
    records += [regex_record(group_id, expression, None) for expression in group.regexes]
    records.append(
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)
    )
    records.append(CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None))
    return records


def create_group_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Everything about a group that was made from a classic one."""
    group_id = group.group_id
    records = [member_record(group_id, member) for member in group.members.values()]
    records.append(group_epoch_record(group_id, group.group_epoch, group.metadata_hash))
    records += [target_record(group_id, m, target) for m, target in group.target.items()]
    records.append(
        assignment_epoch_record(group_id, group.assignment_epoch, group.assignment_computed_ms)
    )
    records += [current_record(group_id, member) for member in group.members.values()]
    return records
