"""What ListGroups, DescribeGroups and ConsumerGroupDescribe say about a group."""

from __future__ import annotations

from collections.abc import Collection

from tidelog.coordinator.groups.assignors import Assignment
from tidelog.coordinator.groups.classic_group import ClassicGroup, ClassicState
from tidelog.coordinator.groups.consumer_group import ConsumerGroup
from tidelog.coordinator.groups.consumer_member import ConsumerMember, to_rows
from tidelog.coordinator.groups.group_table import Group, GroupTable
from tidelog.coordinator.groups.topics import TopicsView
from tidelog.protocol.apis import consumer_group_describe as consumer_api
from tidelog.protocol.apis import describe_groups as classic_api
from tidelog.protocol.apis.list_groups import ListedGroup
from tidelog.protocol.consumer_protocol import PROTOCOL_TYPE
from tidelog.protocol.errors import ErrorCode

# From this version on DescribeGroups says that a group does not exist; before, it is "Dead".
_NOT_FOUND_FROM = 6
_MEMBER_TYPE_CLASSIC = 0
_MEMBER_TYPE_CONSUMER = 1


def state_name(group: Group) -> str:
    return group.state.value if isinstance(group, ClassicGroup) else group.state_name


def list_groups(
    groups: GroupTable, states: Collection[str], types: Collection[str]
) -> list[ListedGroup]:
    """Filters are compared without regard to case; an empty one lets everything through."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}
    rows = []
    for group in groups:
        is_classic = isinstance(group, ClassicGroup)
        kind = "classic" if is_classic else "consumer"
        state = state_name(group)
        if wanted_states and state.lower() not in wanted_states:
            continue
        if wanted_types and kind not in wanted_types:
            continue
        protocol_type = (
            group.protocol_type or "" if isinstance(group, ClassicGroup) else PROTOCOL_TYPE
        )
        rows.append(
            ListedGroup(
                group_id=group.group_id,
                protocol_type=protocol_type,
                group_state=state,
                group_type=kind,
            )
        )
    return rows


def describe_classic(groups: GroupTable, group_id: str, version: int) -> classic_api.DescribedGroup:
    group = groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        described = classic_api.DescribedGroup(
            group_id=group_id, group_state=ClassicState.DEAD.value
        )
        if version >= _NOT_FOUND_FROM:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = (
                f"Group {group_id} not found."
                if group is None
                else f"Group {group_id} is not a classic group."
            )
        return described
    stable = group.state is ClassicState.STABLE
    return classic_api.DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            classic_api.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment if stable else b"",
            )
            for member in group.members.values()
        ],
    )


def describe_consumer(
    groups: GroupTable, group_id: str, default_assignor: str, topics: TopicsView
) -> consumer_api.DescribedGroup:
    group = groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return consumer_api.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=(
                f"Group {group_id} not found."
                if group is None
                else f"Group {group_id} is not a consumer group."
            ),
        )
    return consumer_api.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[_describe_member(group, m, topics) for m in group.members.values()],
    )


def _describe_member(
    group: ConsumerGroup, member: ConsumerMember, topics: TopicsView
) -> consumer_api.Member:
    target = group.target.get(member.member_id, {})
    return consumer_api.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_describe_assignment(member.assigned, topics),
        target_assignment=_describe_assignment(target, topics),
        member_type=(
            _MEMBER_TYPE_CLASSIC if member.uses_classic_protocol else _MEMBER_TYPE_CONSUMER
        ),
    )


def _describe_assignment(assignment: Assignment, topics: TopicsView) -> consumer_api.Assignment:
    return consumer_api.Assignment(
        topic_partitions=[
            consumer_api.TopicPartitions(
                topic_id=row.topic_id,
                topic_name=topics.topics_by_id[row.topic_id].name,
                partitions=row.partitions,
            )
            for row in to_rows(assignment)
            if row.topic_id in topics.topics_by_id
        ]
    )
