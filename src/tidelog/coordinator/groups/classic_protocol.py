"""The classic group protocol after the join: rebalance, SyncGroup, Heartbeat, LeaveGroup, timeouts.

Joins are parked until every member has joined or the rebalance timeout has run out; syncs until
the leader has brought the assignment and its record is in the log. Whoever is still parked when the
group starts over is sent back with REBALANCE_IN_PROGRESS, so that no member waits for an answer
that nobody will give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.coordinator.groups.classic_group import (
    GROUP_METADATA_VERSION,
    ClassicGroup,
    ClassicMember,
    ClassicState,
)
from tidelog.coordinator.groups.group_config import GroupConfig
from tidelog.coordinator.records.group import GroupMetadataKey, GroupMetadataValue
from tidelog.coordinator.shard import (
    CoordinatorRecord,
    CoordinatorResult,
    Reply,
    Ticket,
    append_refusal,
)
from tidelog.coordinator.timers import Timers
from tidelog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.apis.join_group import JoinGroupResponse
from tidelog.protocol.apis.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tidelog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.protocol.errors import ApiError, ErrorCode

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = (
    ClassicState.EMPTY,
    ClassicState.PREPARING_REBALANCE,
    ClassicState.COMPLETING_REBALANCE,
    ClassicState.STABLE,
    ClassicState.DEAD,
)


def join_error(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id)


class ClassicGroupProtocol:
    """Drives the classic groups of one shard. `find` looks a live classic group up for a timer."""

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers[CoordinatorResult[Any]],
        find: Callable[[str], ClassicGroup | None],
    ) -> None:
        self._config = config
        self._timers = timers
        self._find = find

    # The course of a rebalance

    def rebalance_or_complete(self, group: ClassicGroup, now_ms: int) -> CoordinatorResult[Any]:
        if group.can_rebalance:
            return self.prepare_rebalance(group, now_ms)
        return self._complete_if_joined(group, now_ms)

    def _complete_if_joined(self, group: ClassicGroup, now_ms: int) -> CoordinatorResult[Any]:
        if group.state is PREPARING and group.previous_state is not EMPTY and group.all_joined:
            return self._complete_join(group, now_ms)
        return CoordinatorResult()

    def prepare_rebalance(self, group: ClassicGroup, now_ms: int) -> CoordinatorResult[Any]:
        result: CoordinatorResult[Any] = CoordinatorResult()
        if group.state is COMPLETING:
            result.replies += self._reset_assignments(
                group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms
            )
        self._end_sync_phase(group)
        first = group.state is EMPTY
        group.transition(PREPARING, now_ms)
        if first:
            # A new group waits a moment for more members, so that it does not rebalance for each.
            delay_ms = self._config.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.new_member_added = False
            self._schedule_initial(group.group_id, delay_ms, remaining_ms, now_ms)
        elif group.all_joined:
            result.absorb(self._complete_join(group, now_ms))
        else:
            self._schedule_join_timeout(group, now_ms)
        return result

    def _schedule_initial(
        self, group_id: str, delay_ms: int, remaining_ms: int, now_ms: int
    ) -> None:
        def due(due_ms: int) -> CoordinatorResult[Any]:
            group = self._find(group_id)
            if group is None or group.state is not PREPARING:
                return CoordinatorResult()
            if group.new_member_added and remaining_ms > 0:
                group.new_member_added = False
                next_delay_ms = min(self._config.group_initial_rebalance_delay_ms, remaining_ms)
                left_ms = max(remaining_ms - delay_ms, 0)
                self._schedule_initial(group_id, next_delay_ms, left_ms, due_ms)
                return CoordinatorResult()
            return self._complete_join(group, due_ms)

        self._timers.schedule(("join", group_id), now_ms + delay_ms, due)

    def _schedule_join_timeout(self, group: ClassicGroup, now_ms: int) -> None:
        def due(due_ms: int) -> CoordinatorResult[Any]:
            current = self._find(group.group_id)
            if current is None or current.state is not PREPARING:
                return CoordinatorResult()
            return self._complete_join(current, due_ms)

        deadline_ms = now_ms + group.rebalance_timeout_ms
        self._timers.schedule(("join", group.group_id), deadline_ms, due)

    def _complete_join(self, group: ClassicGroup, now_ms: int) -> CoordinatorResult[Any]:
        self._timers.cancel(("join", group.group_id))
        absent = [
            member.member_id
            for member in group.members.values()
            if member.join_ticket is None and member.group_instance_id is None
        ]
        for member_id in absent:
            group.remove(member_id)
            self._timers.cancel(("session", group.group_id, member_id))
        if not group.elect_joined_leader() and group.members:
            # Only static members are left and none has joined: wait until their sessions end.
            self._schedule_join_timeout(group, now_ms)
            return CoordinatorResult()
        group.begin_generation(now_ms)
        if group.state is EMPTY:
            return CoordinatorResult([self.metadata_record(group, {})])
        result: CoordinatorResult[Any] = CoordinatorResult()
        for member in group.members.values():
            if (ticket := group.take_join(member)) is not None:
                result.replies.append(Reply(ticket, self.join_response(group, member)))
            member.is_new = False
            self.extend_session(group, member, now_ms)
            group.pending_sync_members.add(member.member_id)
        self._schedule_sync_timeout(group, now_ms)
        return result

    def join_response(self, group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
        leads = group.leader == member.member_id
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol or "",
            leader=group.leader or "",
            member_id=member.member_id,
            members=group.response_members() if leads and group.state is COMPLETING else [],
        )

    # SyncGroup

    def sync(
        self, group: ClassicGroup, request: SyncGroupRequest, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult[SyncGroupResponse]:
        error = self._sync_error(group, request)
        if error is not None:
            return CoordinatorResult(response=SyncGroupResponse(error_code=error))
        member = group.members[request.member_id]
        group.pending_sync_members.discard(member.member_id)
        if not group.pending_sync_members:
            self._timers.cancel(("sync", group.group_id))
        if group.state is STABLE:
            # Late, perhaps behind a slow link: it has its full session from here on.
            self.extend_session(group, member, now_ms)
            return CoordinatorResult(response=self._sync_response(group, member))
        replies = []
        if member.sync_ticket is not None:
            again = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            replies.append(Reply(member.sync_ticket, again))
        member.sync_ticket = ticket
        if group.leader != member.member_id:
            return CoordinatorResult(replies=replies)
        result = self._store_assignment(group, request, now_ms)
        result.replies[:0] = replies
        return result

    def _sync_error(self, group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode | None:
        if group.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            group.check_member(request.member_id, request.group_instance_id)
        except ApiError as error:
            return error.code
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        for said, known in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol),
        ):
            if said is not None and known is not None and said != known:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is PREPARING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return None

    def _store_assignment(
        self, group: ClassicGroup, request: SyncGroupRequest, now_ms: int
    ) -> CoordinatorResult[SyncGroupResponse]:
        assignments = {row.member_id: row.assignment for row in request.assignments}
        record = self.metadata_record(group, assignments)

        def settle(error: ApiError | None) -> CoordinatorResult[Any]:
            if error is not None:
                code = append_refusal(error)
                result: CoordinatorResult[Any] = CoordinatorResult(
                    replies=self._reset_assignments(group, code, now_ms)
                )
                result.absorb(self.prepare_rebalance(group, now_ms))
                return result
            # Replaying the record has given the members their assignments and made the group
            # stable. The answers may leave only when the record is committed, so they go with it.
            return CoordinatorResult(replies=self._answer_syncs(group, ErrorCode.NONE, now_ms))

        return CoordinatorResult([record], settle=settle)

    def _sync_response(self, group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            assignment=member.assignment,
        )

    def _answer_syncs(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> list[Reply]:
        replies = []
        for member in group.members.values():
            if member.sync_ticket is None:
                continue
            if error is ErrorCode.NONE:
                response = self._sync_response(group, member)
            else:
                response = SyncGroupResponse(error_code=error)
            replies.append(Reply(member.sync_ticket, response))
            member.sync_ticket = None
            self.extend_session(group, member, now_ms)
        return replies

    def _reset_assignments(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> list[Reply]:
        for member in group.members.values():
            member.assignment = b""
        return self._answer_syncs(group, error, now_ms)

    def _schedule_sync_timeout(self, group: ClassicGroup, now_ms: int) -> None:
        generation = group.generation

        def due(due_ms: int) -> CoordinatorResult[Any]:
            current = self._find(group.group_id)
            if (
                current is None
                or current.generation != generation
                or current.state not in (COMPLETING, STABLE)
                or not current.pending_sync_members
            ):
                return CoordinatorResult()
            for member_id in list(current.pending_sync_members):
                current.remove(member_id)
                self._timers.cancel(("session", current.group_id, member_id))
            return self.prepare_rebalance(current, due_ms)

        deadline_ms = now_ms + group.rebalance_timeout_ms
        self._timers.schedule(("sync", group.group_id), deadline_ms, due)

    def _end_sync_phase(self, group: ClassicGroup) -> None:
        group.pending_sync_members.clear()
        self._timers.cancel(("sync", group.group_id))

    # Heartbeat and sessions

    def heartbeat(
        self, group: ClassicGroup, request: HeartbeatRequest, now_ms: int
    ) -> HeartbeatResponse:
        """Cost: two dictionary look-ups and one write; no allocation but the response."""
        if group.state is DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        if group.state is EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.extend_session(group, group.members[request.member_id], now_ms)
        if group.state is PREPARING:
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def extend_session(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        self.schedule_session(group.group_id, member.member_id, now_ms + member.session_timeout_ms)

    def schedule_session(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        self._timers.schedule(
            ("session", group_id, member_id),
            deadline_ms,
            lambda due_ms: self._session_ended(group_id, member_id, due_ms),
        )

    def _session_ended(self, group_id: str, member_id: str, now_ms: int) -> CoordinatorResult[Any]:
        group = self._find(group_id)
        if group is None or group.state is DEAD:
            return CoordinatorResult()
        if member_id in group.pending_members:
            group.remove(member_id)
            return self._after_removal(group, now_ms)
        member = group.members.get(member_id)
        if member is None or member.is_waiting:
            return CoordinatorResult()
        result: CoordinatorResult[Any] = CoordinatorResult(replies=self._drop_member(group, member))
        result.absorb(self._after_removal(group, now_ms))
        return result

    # LeaveGroup

    def leave(
        self, group: ClassicGroup, request: LeaveGroupRequest, now_ms: int
    ) -> CoordinatorResult[LeaveGroupResponse]:
        if group.state is DEAD:
            response = LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return CoordinatorResult(response=response)
        rows = []
        replies: list[Reply] = []
        for identity in request.members:
            error = self._leave_one(group, identity, replies)
            rows.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
            )
        result: CoordinatorResult[LeaveGroupResponse] = CoordinatorResult(replies=replies)
        if any(row.error_code == ErrorCode.NONE for row in rows):
            result.absorb(self._after_removal(group, now_ms))
        result.response = LeaveGroupResponse(members=rows)
        return result

    def _leave_one(
        self, group: ClassicGroup, identity: MemberIdentity, replies: list[Reply]
    ) -> ErrorCode:
        member_id = identity.member_id
        instance_id = identity.group_instance_id
        if not member_id:
            # An operator removes a static member by its instance id alone.
            if instance_id is None or instance_id not in group.static_members:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = group.static_members[instance_id]
        elif member_id in group.pending_members:
            group.remove(member_id)
            self._timers.cancel(("session", group.group_id, member_id))
            return ErrorCode.NONE
        try:
            group.check_member(member_id, instance_id)
        except ApiError as error:
            return error.code
        replies += self._drop_member(group, group.members[member_id])
        return ErrorCode.NONE

    def _drop_member(self, group: ClassicGroup, member: ClassicMember) -> list[Reply]:
        """Removes it; if it still waits it is told to join anew, should it be alive after all."""
        replies = []
        if (ticket := group.take_join(member)) is not None:
            replies.append(Reply(ticket, join_error(ErrorCode.UNKNOWN_MEMBER_ID)))
        if member.sync_ticket is not None:
            gone = SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            replies.append(Reply(member.sync_ticket, gone))
            member.sync_ticket = None
        self._timers.cancel(("session", group.group_id, member.member_id))
        group.remove(member.member_id)
        return replies

    def _after_removal(self, group: ClassicGroup, now_ms: int) -> CoordinatorResult[Any]:
        if group.state in (STABLE, COMPLETING):
            return self.prepare_rebalance(group, now_ms)
        return self._complete_if_joined(group, now_ms)

    # Loading, unloading, records

    def loaded(self, group: ClassicGroup, now_ms: int) -> CoordinatorResult[Any]:
        """Sessions start anew: the members could not have sent heartbeats meanwhile."""
        for member in group.members.values():
            self.extend_session(group, member, now_ms)
        if len(group.members) > self._config.group_max_size:
            return self.prepare_rebalance(group, now_ms)
        return CoordinatorResult()

    def dismiss(self, group: ClassicGroup, error: ErrorCode) -> list[Reply]:
        """Answers everything parked; the group is leaving this shard or becoming another kind."""
        replies = []
        for member in group.members.values():
            if (ticket := group.take_join(member)) is not None:
                replies.append(Reply(ticket, join_error(error, member.member_id)))
            if member.sync_ticket is not None:
                replies.append(Reply(member.sync_ticket, SyncGroupResponse(error_code=error)))
                member.sync_ticket = None
        return replies

    def cancel_timers(self, group: ClassicGroup) -> None:
        self._timers.cancel(("join", group.group_id))
        self._timers.cancel(("sync", group.group_id))
        for member_id in (*group.members, *group.pending_members):
            self._timers.cancel(("session", group.group_id, member_id))

    def metadata_record(
        self,
        group: ClassicGroup,
        assignments: dict[str, bytes],
        *,
        renamed: tuple[str, str] | None = None,
    ) -> CoordinatorRecord:
        return CoordinatorRecord(
            GroupMetadataKey(group=group.group_id),
            group.snapshot(assignments, renamed=renamed),
            GROUP_METADATA_VERSION,
        )


def empty_group_record(group_id: str, now_ms: int) -> CoordinatorRecord:
    """A group that a member is about to make by joining: nothing of it is known yet."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group_id),
        GroupMetadataValue(current_state_timestamp=now_ms),
        GROUP_METADATA_VERSION,
    )


def group_assignments(group: ClassicGroup) -> dict[str, bytes]:
    return {member.member_id: member.assignment for member in group.members.values()}
