"""A group of the consumer protocol (KIP-848), as its records say it is.

Three epochs drive it. `group_epoch` grows when the members, their subscriptions or the topics
change. `assignment_epoch` says for which group epoch the target assignment was computed. Each
member's epoch says how far it has come towards the target.

Every change here comes from replaying a record; `members`, `target` and the rest are read by the
code that decides on new records.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from tidelog.coordinator.groups.assignors import Assignment
from tidelog.coordinator.groups.consumer_member import (
    LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    from_rows,
)
from tidelog.coordinator.records.group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidelog.coordinator.shard import CoordinatorRecord
from tidelog.protocol.errors import ApiError, ErrorCode


@dataclass(slots=True, frozen=True)
class ResolvedRegex:
    """The topics that an expression named at one version of the metadata."""

    topics: frozenset[str]
    version: int
    resolved_at_ms: int


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """invariant: partition_owners holds exactly the partitions that members have assigned or
    pending revocation, each under one member."""

    group_id: str
    group_epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    assignment_computed_ms: int = 0  # 0: nobody knows
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    partition_owners: dict[bytes, dict[int, str]] = field(default_factory=dict)
    # Soft: the version of the metadata that the hash was last compared with.
    checked_version: int = -2

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        epoch = self.assignment_epoch
        if all(member.is_reconciled_to(epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def is_owned(self, topic_id: bytes, index: int) -> bool:
        owners = self.partition_owners.get(topic_id)
        return owners is not None and index in owners

    def find_member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member of group {self.group_id}"
            )
        return member

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """True while a partition of its target is still owned by another member."""
        target = self.target.get(member.member_id, {})
        for topic_id, partitions in target.items():
            owners = self.partition_owners.get(topic_id, {})
            for index in partitions:
                if owners.get(index, member.member_id) != member.member_id:
                    return True
        return False

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """What it subscribes to, by name and by expression."""
        if member.subscribed_topic_regex is None:
            return member.subscribed_topic_names
        resolved = self.regexes.get(member.subscribed_topic_regex)
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | resolved.topics

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*(self.topics_of(member) for member in self.members.values()))

    def preferred_assignor(self, default: str) -> str:
        """The one that most members ask for."""
        votes = Counter(
            member.server_assignor
            for member in self.members.values()
            if member.server_assignor is not None
        )
        return votes.most_common(1)[0][0] if votes else default

    def all_classic_except(self, member_id: str) -> bool:
        return all(
            member.uses_classic_protocol or member.member_id == member_id
            for member in self.members.values()
        )

    def copy(self) -> ConsumerGroup:
        """To try records out on: members and assignments are values and may be shared."""
        return replace(
            self,
            members=dict(self.members),
            static_members=dict(self.static_members),
            target=dict(self.target),
            regexes=dict(self.regexes),
            partition_owners={t: dict(owners) for t, owners in self.partition_owners.items()},
        )

    # Replay

    def replay(self, record: CoordinatorRecord) -> None:
        """Applies a record of this group. That a tombstone of the group itself removes it from the
        shard is the shard's business."""
        key, value = record.key, record.value
        if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
            self._replay_current(key.member_id, value)
        elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
            assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
            if value is None:
                self.target.pop(key.member_id, None)
            else:
                self.target[key.member_id] = from_rows(value.topic_partitions)
        elif isinstance(key, ConsumerGroupMemberMetadataKey):
            assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
            self._replay_member(key.member_id, value)
        elif isinstance(value, ConsumerGroupMetadataValue):
            self.group_epoch = value.epoch
            self.metadata_hash = value.metadata_hash
        elif isinstance(value, ConsumerGroupTargetAssignmentMetadataValue):
            self.assignment_epoch = value.assignment_epoch
            self.assignment_computed_ms = value.assignment_timestamp
        elif isinstance(key, ConsumerGroupRegularExpressionKey):
            assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
            if value is None:
                self.regexes.pop(key.regular_expression, None)
            else:
                self.regexes[key.regular_expression] = ResolvedRegex(
                    frozenset(value.topics), value.version, value.timestamp
                )

    def _replay_member(
        self, member_id: str, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        if value is None:
            removed = self.members.pop(member_id, None)
            if removed is not None:
                self._own(removed, ConsumerMember(member_id))
                self._forget_instance(removed)
            return
        member = self.members.get(member_id) or ConsumerMember(member_id)
        updated = member.with_metadata(value)
        if updated.instance_id != member.instance_id:
            self._forget_instance(member)
        if updated.instance_id is not None:
            self.static_members[updated.instance_id] = member_id
        self.members[member_id] = updated

    def _replay_current(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(member_id)
        if value is not None:
            member = member or ConsumerMember(member_id)
            updated = member.with_current(value)
        elif member is not None:
            updated = replace(
                member,
                member_epoch=LEAVE_EPOCH,
                previous_member_epoch=LEAVE_EPOCH,
                state=MemberState.STABLE,
                assigned={},
                pending_revocation={},
            )
        else:
            return
        self._own(member, updated)
        self.members[member_id] = updated

    def _own(self, before: ConsumerMember, after: ConsumerMember) -> None:
        for assignment in (before.assigned, before.pending_revocation):
            for topic_id, partitions in assignment.items():
                owners = self.partition_owners.get(topic_id, {})
                for index in partitions:
                    if owners.get(index) == before.member_id:
                        del owners[index]
                if not owners:
                    self.partition_owners.pop(topic_id, None)
        for assignment in (after.assigned, after.pending_revocation):
            for topic_id, partitions in assignment.items():
                owners = self.partition_owners.setdefault(topic_id, {})
                for index in partitions:
                    owners[index] = after.member_id

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]
