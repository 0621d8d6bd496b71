"""The group coordinator of one partition of `__consumer_offsets`: groups and their offsets.

This is where a request meets the kind of group it is for; what happens then is in `groups/`
(`classic_joins`, `classic_protocol`, `consumer_protocol`, `mixed_group`, `migration`) and in
`offset_requests`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from tidelog.coordinator.groups import consumer_records as write
from tidelog.coordinator.groups.classic_group import ClassicGroup, ClassicState
from tidelog.coordinator.groups.classic_joins import ClassicJoins
from tidelog.coordinator.groups.classic_protocol import (
    ClassicGroupProtocol,
    empty_group_record,
    join_error,
)
from tidelog.coordinator.groups.client_context import ClientContext
from tidelog.coordinator.groups.consumer_draft import Draft
from tidelog.coordinator.groups.consumer_group import ConsumerGroup
from tidelog.coordinator.groups.consumer_member import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
)
from tidelog.coordinator.groups.consumer_protocol import ConsumerGroupProtocol
from tidelog.coordinator.groups.consumer_requests import check_heartbeat
from tidelog.coordinator.groups.descriptions import (
    describe_classic,
    describe_consumer,
    list_groups,
)
from tidelog.coordinator.groups.group_config import GroupConfig
from tidelog.coordinator.groups.group_table import Group, GroupTable
from tidelog.coordinator.groups.migration import to_classic_group, to_consumer_group
from tidelog.coordinator.groups.mixed_group import MemberIdRequired, MixedGroups
from tidelog.coordinator.groups.topics import TopicsView
from tidelog.coordinator.offset_requests import OffsetRequests
from tidelog.coordinator.offsets import Offsets
from tidelog.coordinator.record_pairs import Pair
from tidelog.coordinator.records.consumer_offsets import CONSUMER_OFFSETS
from tidelog.coordinator.records.group import GroupMetadataKey, GroupMetadataValue
from tidelog.coordinator.records.offset import (
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.coordinator.shard import (
    CoordinatorRecord,
    CoordinatorResult,
    Reply,
    Ticket,
    append_refusal,
)
from tidelog.coordinator.timers import Timers
from tidelog.protocol.apis import consumer_group_describe, describe_groups
from tidelog.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.apis.delete_groups import DeletableGroupResult
from tidelog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.protocol.apis.list_groups import ListedGroup
from tidelog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.uuids import ZERO_UUID

# Expired offsets leave in batches of this many records, so that no batch grows without limit.
_EXPIRY_BATCH_RECORDS = 1_000

# The first two bytes of an offset record's key: its type, 0 or 1.
_OFFSET_KEY_PREFIXES = (b"\x00\x00", b"\x00\x01")


class GroupShard:
    """Implements `Shard`. Request methods raise ApiError for a refusal that changes nothing."""

    def __init__(self, config: GroupConfig, new_id: Callable[[], str]) -> None:
        self.config = config
        self.groups = GroupTable()
        self.timers: Timers[CoordinatorResult[Any]] = Timers()
        self.committed = Offsets()
        self._classic = ClassicGroupProtocol(config, self.timers, self.groups.classic)
        self._joins = ClassicJoins(config, self.timers, self._classic, new_id)
        self._consumer = ConsumerGroupProtocol(
            config, self.timers, self.groups.consumer, self._fence, new_id
        )
        self._mixed = MixedGroups(self._consumer, self.timers, new_id)
        self.offsets = OffsetRequests(
            config, self.groups, self.committed, self._classic, self._topic_id
        )

    @property
    def topics(self) -> TopicsView:
        return self._consumer.topics

    def set_topics(
        self, topics: TopicsView, deleted: Collection[str] = ()
    ) -> CoordinatorResult[None]:
        """The metadata changed; the offsets of deleted topics go with them."""
        self._consumer.topics = topics
        return CoordinatorResult(self.offsets.topic_tombstones(deleted) if deleted else [])

    def remove_offsets_of_deleted_topics(self) -> CoordinatorResult[None]:
        """For a shard that was not there when topics were deleted. Offsets are committed for topics
        that exist only, and by whoever led the partition before this view of the topics."""
        return CoordinatorResult(self.offsets.orphan_tombstones(self.topics))

    def _topic_id(self, name: str) -> bytes:
        topic = self.topics.topics_by_name.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def set_overrides(self, overrides: Callable[[str, str], str | None]) -> None:
        """`overrides(group id, setting)` is what an operator set for one group, or None."""
        self._consumer.overrides = overrides

    # Classic protocol

    def join(
        self, client: ClientContext, request: JoinGroupRequest, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult[JoinGroupResponse]:
        """No response means that the join is parked: its ticket is answered later."""
        timeout_ms = request.session_timeout_ms
        if not (
            self.config.group_min_session_timeout_ms
            <= timeout_ms
            <= self.config.group_max_session_timeout_ms
        ):
            error = join_error(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
            return CoordinatorResult(response=error)
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            if group.members:
                return self._join_mixed(group, client, request, ticket, now_ms)
            if request.member_id:
                return CoordinatorResult(
                    response=join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
                )
            # An empty consumer group becomes a classic one by being deleted first.
            removal = write.remove_group_records(group)
            return self._join_new(removal, client, request, ticket, now_ms)
        if group is None:
            if request.member_id:
                return CoordinatorResult(
                    response=join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
                )
            return self._join_new([], client, request, ticket, now_ms)
        return self._joins.join(group, client, request, ticket, now_ms)

    def _join_new(
        self,
        before: list[CoordinatorRecord],
        client: ClientContext,
        request: JoinGroupRequest,
        ticket: Ticket,
        now_ms: int,
    ) -> CoordinatorResult[JoinGroupResponse]:
        """Makes a classic group, empty, with a record of its own; then lets the member in."""

        def settle(error: ApiError | None) -> CoordinatorResult[Any]:
            if error is not None:
                return CoordinatorResult(replies=[Reply(ticket, join_error(append_refusal(error)))])
            classic = self.groups.classic(request.group_id)
            assert classic is not None
            result = self._joins.join(classic, client, request, ticket, now_ms)
            if result.response is not None:
                result.replies.append(Reply(ticket, result.response))
                result.response = None
            return result

        return CoordinatorResult(
            [*before, empty_group_record(request.group_id, now_ms)], settle=settle
        )

    def _join_mixed(
        self,
        group: ConsumerGroup,
        client: ClientContext,
        request: JoinGroupRequest,
        ticket: Ticket,
        now_ms: int,
    ) -> CoordinatorResult[JoinGroupResponse]:
        draft = Draft(group)
        try:
            join = self._mixed.join(draft, client, request, now_ms)
        except MemberIdRequired as required:
            error = join_error(ErrorCode.MEMBER_ID_REQUIRED, required.member_id)
            return CoordinatorResult(response=error)
        except ApiError as refused:
            return CoordinatorResult(response=join_error(refused.code, request.member_id))
        replaced = None if join.replaced is None else group.members[join.replaced]
        if (
            replaced is not None
            and not replaced.uses_classic_protocol
            and self._may_downgrade(draft.group, None)
        ):
            result = self._downgrade(draft, None, now_ms)
            result.response = join.response
            return result

        def settle(error: ApiError | None) -> None:
            if error is None:
                self._mixed.joined(request.group_id, join, now_ms)
            else:
                join.response.error_code = append_refusal(error)

        return CoordinatorResult(draft.records, join.response, settle=settle)

    def sync(
        self, request: SyncGroupRequest, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult[SyncGroupResponse]:
        """No response means that the sync is parked: its ticket is answered later."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            try:
                return CoordinatorResult(response=self._mixed.sync(group, request, now_ms))
            except ApiError as refused:
                return CoordinatorResult(response=SyncGroupResponse(error_code=refused.code))
        if group is None or group.is_empty:
            return CoordinatorResult(
                response=SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            )
        return self._classic.sync(group, request, ticket, now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._classic.heartbeat(group, request, now_ms)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {request.group_id} not found.")
        return self._mixed.heartbeat(group, request, now_ms)

    def leave(
        self, request: LeaveGroupRequest, now_ms: int
    ) -> CoordinatorResult[LeaveGroupResponse]:
        group = self.groups.get(request.group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {request.group_id} not found.")
        if isinstance(group, ClassicGroup):
            return self._classic.leave(group, request, now_ms)
        draft = Draft(group)
        response, left = self._mixed.leave(draft, request)
        return CoordinatorResult(
            draft.records, response, settle=self._cancel_timers(group.group_id, left)
        )

    # Consumer protocol

    def consumer_heartbeat(
        self, client: ClientContext, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        check_heartbeat(request, client.api_version, self.config.group_consumer_assignors)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._consumer_leave(request, now_ms)
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            draft = Draft(group)
            response = self._consumer.heartbeat(draft, client, request, now_ms)
            return CoordinatorResult(draft.records, response)
        if request.member_epoch != 0:
            raise _not_a_consumer_group(request.group_id, group)
        if group is None or not group.members:
            tombstones = [] if group is None else _classic_tombstones(group)
            draft = Draft(ConsumerGroup(request.group_id), tombstones)
            response = self._consumer.heartbeat(draft, client, request, now_ms)
            return CoordinatorResult(draft.records, response)
        return self._upgrade(group, client, request, now_ms)

    def _upgrade(
        self,
        group: ClassicGroup,
        client: ClientContext,
        request: ConsumerGroupHeartbeatRequest,
        now_ms: int,
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        if (
            not self.config.upgrade_enabled
            or not group.uses_consumer_protocol
            or len(group.members) > self.config.group_consumer_max_size
        ):
            raise _not_a_consumer_group(request.group_id, group)
        try:
            converted = to_consumer_group(group, self.topics)
        except ProtocolError as error:
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade the classic group {group.group_id}: {error}",
            ) from error
        records = _classic_tombstones(group) + write.create_group_records(converted)
        draft = Draft(converted, records)
        response = self._consumer.heartbeat(draft, client, request, now_ms)

        def settle(error: ApiError | None) -> CoordinatorResult[Any] | None:
            current = self.groups.consumer(request.group_id)
            if error is not None or current is None:
                return None
            self._classic.cancel_timers(group)
            self._consumer.loaded(current, now_ms)
            parked = self._classic.dismiss(group, ErrorCode.REBALANCE_IN_PROGRESS)
            return CoordinatorResult(replies=parked)

        return CoordinatorResult(draft.records, response, settle=settle)

    def _consumer_leave(
        self, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        group = self.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise _not_a_consumer_group(request.group_id, group)
        member = self._consumer.leaving_member(group, request)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            draft = Draft(group)
            self._consumer.leave_for_a_while(draft, member)
            result: CoordinatorResult[Any] = CoordinatorResult(draft.records)
        else:
            result = self._fence(group, member, now_ms)
        result.response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )
        return result

    def _fence(
        self, group: ConsumerGroup, member: ConsumerMember, now_ms: int
    ) -> CoordinatorResult[Any]:
        draft = Draft(group)
        if self._may_downgrade(group, member.member_id):
            return self._downgrade(draft, member.member_id, now_ms)
        self._consumer.leave(draft, member)
        settle = self._cancel_timers(group.group_id, [member.member_id])
        return CoordinatorResult(draft.records, settle=settle)

    def _cancel_timers(
        self, group_id: str, member_ids: list[str]
    ) -> Callable[[ApiError | None], None]:
        """Once it is in the log that the members have left."""

        def settle(error: ApiError | None) -> None:
            if error is None:
                for member_id in member_ids:
                    self._consumer.cancel_timers(group_id, member_id)

        return settle

    def _may_downgrade(self, group: ConsumerGroup, leaving_member_id: str | None) -> bool:
        staying = len(group.members) - (leaving_member_id in group.members)
        return (
            self.config.downgrade_enabled
            and 0 < staying <= self.config.group_max_size
            and group.all_classic_except(leaving_member_id or "")
        )

    def _downgrade(
        self, draft: Draft, leaving_member_id: str | None, now_ms: int
    ) -> CoordinatorResult[Any]:
        group = draft.group
        classic = to_classic_group(group, leaving_member_id, self.topics, now_ms)
        assignments = {m.member_id: m.assignment for m in classic.members.values()}
        records = [
            *draft.records,
            *write.remove_group_records(group),
            self._classic.metadata_record(classic, assignments),
        ]

        def settle(error: ApiError | None) -> CoordinatorResult[Any] | None:
            current = self.groups.classic(group.group_id)
            if error is not None or current is None:
                return None
            for member_id in group.members:
                self._consumer.cancel_timers(group.group_id, member_id)
            for member in current.members.values():
                # The record holds the chosen protocol only; the next choice wants all of them.
                known = classic.members[member.member_id]
                current.update(
                    member, known.protocols, known.rebalance_timeout_ms, known.session_timeout_ms
                )
                self._classic.extend_session(current, member, now_ms)
            if leaving_member_id is None:
                return None
            return self._classic.prepare_rebalance(current, now_ms)

        return CoordinatorResult(records, settle=settle)

    # All groups

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        return list_groups(self.groups, states, types)

    def describe(self, group_id: str, version: int) -> describe_groups.DescribedGroup:
        return describe_classic(self.groups, group_id, version)

    def describe_consumer(self, group_id: str) -> consumer_group_describe.DescribedGroup:
        assignor = self.config.group_consumer_assignors[0]
        return describe_consumer(self.groups, group_id, assignor, self.topics)

    def delete(self, group_ids: Sequence[str]) -> CoordinatorResult[list[DeletableGroupResult]]:
        records: list[CoordinatorRecord] = []
        rows = []
        for group_id in group_ids:
            group = self.groups.get(group_id)
            error = ErrorCode.NONE
            if group is None:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif not group.is_empty:
                error = ErrorCode.NON_EMPTY_GROUP
            else:
                records += self.offsets.group_tombstones(group_id)
                records += self._group_tombstones(group)
            rows.append(DeletableGroupResult(group_id=group_id, error_code=error))
        return CoordinatorResult(records, rows)

    def _group_tombstones(self, group: Group) -> list[CoordinatorRecord]:
        if isinstance(group, ConsumerGroup):
            return write.remove_group_records(group)
        return _classic_tombstones(group)

    # Shard

    def replay(
        self, record: CoordinatorRecord, producer_id: int = -1, producer_epoch: int = -1
    ) -> None:
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.committed.replay(key.group, key.topic, key.partition, value, producer_id)
            if value is not None:
                self.groups.ensure(key.group)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self.groups.replay_classic(key, value)
        else:
            self.groups.replay_consumer(getattr(key, "group_id"), record)  # noqa: B009

    def replay_pairs(self, pairs: Iterable[Pair], producer_id: int, producer_epoch: int) -> None:
        """Records as they are in the log; offsets, which are nearly all of them, the short way."""
        replay_offset = self.committed.replay_bytes
        for key, value in pairs:
            if key is not None and key[:2] in _OFFSET_KEY_PREFIXES:
                replay_offset(key, value, producer_id)
                continue
            record = CONSUMER_OFFSETS.decode(key, value)
            if record is not None:
                self.replay(record, producer_id, producer_epoch)

    def replay_end_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        for group_id in self.committed.replay_end_marker(producer_id, committed):
            self.groups.ensure(group_id)

    def loaded(self, now_ms: int) -> list[CoordinatorResult[Any]]:
        for group_id in self.committed.groups():
            self.groups.ensure(group_id)
        results = []
        for group in self.groups:
            if isinstance(group, ConsumerGroup):
                self._consumer.loaded(group, now_ms)
            elif group.members:
                results.append(self._classic.loaded(group, now_ms))
        self._schedule_expiry(now_ms)
        return results

    def unload(self) -> list[Reply]:
        self.timers.clear()
        replies = []
        for group in self.groups:
            if isinstance(group, ClassicGroup):
                replies += self._classic.dismiss(group, ErrorCode.NOT_COORDINATOR)
                group.transition(ClassicState.DEAD, group.state_since_ms)
        return replies

    def next_deadline_ms(self) -> int | None:
        return self.timers.next_deadline_ms()

    def clock_was_set(self, by_ms: int) -> None:
        """Sessions and rebalances take as long as they were to take."""
        self.timers.shift(by_ms)

    def tick(self, now_ms: int) -> Iterator[CoordinatorResult[Any]]:
        return self.timers.due(now_ms)

    # Expiry

    def _schedule_expiry(self, now_ms: int, interval_ms: int | None = None) -> None:
        if interval_ms is None:
            interval_ms = self.config.offsets_retention_check_interval_ms
        self.timers.schedule("expiry", now_ms + interval_ms, self._expire)

    def _expire(self, now_ms: int) -> CoordinatorResult[Any]:
        """Forgets offsets past their retention, and groups that nothing is left of."""
        records: list[CoordinatorRecord] = []
        for group in self.groups:
            expired, nothing_left = self.offsets.expired(group, now_ms)
            records += expired
            if nothing_left and group.is_empty and not _is_gathering(group):
                if isinstance(group, ClassicGroup) and not group.has_record and not expired:
                    self.groups.forget(group.group_id)
                else:
                    records += self._group_tombstones(group)
            if len(records) >= _EXPIRY_BATCH_RECORDS:
                self._schedule_expiry(now_ms, 1)
                return CoordinatorResult(records)
        self._schedule_expiry(now_ms)
        return CoordinatorResult(records)


def _is_gathering(group: Group) -> bool:
    return isinstance(group, ClassicGroup) and bool(group.pending_members)


def _classic_tombstones(group: ClassicGroup) -> list[CoordinatorRecord]:
    return [CoordinatorRecord(GroupMetadataKey(group=group.group_id), None)]


def _not_a_consumer_group(group_id: str, group: Group | None) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group_id} not found."
        if group is None
        else f"Group {group_id} is not a consumer group.",
    )
