"""Moving a live group from the classic to the consumer protocol and back.

Up: the first member that speaks the consumer protocol joins a classic group. The group becomes a
consumer group in which the other members keep speaking the classic protocol, with the assignment
they have. Down: the last member that speaks the consumer protocol leaves, and what is left becomes
a classic group again. Offsets are not touched by either.
"""

from __future__ import annotations

from tidelog.coordinator.groups.assignors import Assignment
from tidelog.coordinator.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from tidelog.coordinator.groups.consumer_group import ConsumerGroup
from tidelog.coordinator.groups.consumer_member import ConsumerMember
from tidelog.coordinator.groups.topics import TopicsView, metadata_hash
from tidelog.coordinator.records.group import ClassicMemberMetadata, ClassicProtocol
from tidelog.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    TopicPartitions,
    blob_version,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)


def by_topic_id(rows: list[TopicPartitions], topics: TopicsView) -> Assignment:
    """Topics that do not exist any more are left out."""
    result: Assignment = {}
    for row in rows:
        topic = topics.topics_by_name.get(row.topic)
        if topic is not None and row.partitions:
            known = result.get(topic.topic_id, frozenset())
            result[topic.topic_id] = known | frozenset(row.partitions)
    return result


def classic_assignment(member: ConsumerMember, topics: TopicsView) -> bytes:
    """A member's partitions in the bytes that its classic client understands."""
    assert member.classic is not None
    rows = [
        TopicPartitions(topic=topics.topics_by_id[topic_id].name, partitions=sorted(partitions))
        for topic_id, partitions in sorted(member.assigned.items())
        if topic_id in topics.topics_by_id
    ]
    version = blob_version(member.classic.supported_protocols[0].metadata)
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=rows), version)


def to_consumer_group(group: ClassicGroup, topics: TopicsView) -> ConsumerGroup:
    """Raises ProtocolError when a member's bytes are not those of a consumer."""
    result = ConsumerGroup(
        group.group_id, group_epoch=group.generation, assignment_epoch=group.generation
    )
    for member in group.members.values():
        # A member that has just joined again may no longer support the protocol of the generation.
        metadata = member.metadata(group.protocol) or member.protocols[0][1]
        subscription = decode_subscription(metadata)
        assigned = by_topic_id(decode_assignment(member.assignment).assigned_partitions, topics)
        converted = ConsumerMember(
            member.member_id,
            member_epoch=group.generation,
            previous_member_epoch=group.generation,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=frozenset(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMemberMetadata(
                session_timeout_ms=member.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=name, metadata=metadata)
                    for name, metadata in member.protocols
                ],
            ),
            assigned=assigned,
        )
        result.members[member.member_id] = converted
        result.target[member.member_id] = assigned
        if member.group_instance_id is not None:
            result.static_members[member.group_instance_id] = member.member_id
        for topic_id, partitions in assigned.items():
            owners = result.partition_owners.setdefault(topic_id, {})
            owners.update(dict.fromkeys(partitions, member.member_id))
    result.metadata_hash = metadata_hash(result.subscribed_topics(), topics)
    return result


def to_classic_group(
    group: ConsumerGroup, leaving_member_id: str | None, topics: TopicsView, now_ms: int
) -> ClassicGroup:
    """The members that stay all speak the classic protocol."""
    result = ClassicGroup(group.group_id, generation=group.group_epoch)
    for member in group.members.values():
        if member.member_id == leaving_member_id:
            continue
        assert member.classic is not None
        result.add(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                [(p.name, p.metadata) for p in member.classic.supported_protocols],
                assignment=classic_assignment(member, topics),
            ),
            PROTOCOL_TYPE,
        )
    result.protocol = result.select_protocol()
    result.transition(ClassicState.STABLE, now_ms)
    return result
