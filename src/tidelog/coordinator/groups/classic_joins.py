"""JoinGroup of the classic protocol: who may join, as whom, and what that does to the group.

A dynamic member is new, pending (it was sent away with an id), or known. A static member that comes
back without its id takes the place of its former self; in a stable group nobody else notices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.coordinator.groups.classic_group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    protocol_pairs,
)
from tidelog.coordinator.groups.classic_protocol import (
    ClassicGroupProtocol,
    group_assignments,
    join_error,
)
from tidelog.coordinator.groups.client_context import ClientContext
from tidelog.coordinator.groups.group_config import GroupConfig
from tidelog.coordinator.shard import CoordinatorResult, Reply, Ticket, append_refusal
from tidelog.coordinator.timers import Timers
from tidelog.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.apis.sync_group import SyncGroupResponse
from tidelog.protocol.errors import ApiError, ErrorCode

# From these versions on a new member is sent away with an id first, and a leader may be told not to
# assign.
_MEMBER_ID_REQUIRED_FROM = 4
_SKIP_ASSIGNMENT_FROM = 9

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = (
    ClassicState.EMPTY,
    ClassicState.PREPARING_REBALANCE,
    ClassicState.COMPLETING_REBALANCE,
    ClassicState.STABLE,
    ClassicState.DEAD,
)


class ClassicJoins:
    """Takes the joins of one shard's classic groups; `rebalance` drives what follows."""

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers[CoordinatorResult[Any]],
        rebalance: ClassicGroupProtocol,
        new_id: Callable[[], str],
    ) -> None:
        self._config = config
        self._timers = timers
        self._rebalance = rebalance
        self._new_id = new_id

    def join(
        self,
        group: ClassicGroup,
        client: ClientContext,
        request: JoinGroupRequest,
        ticket: Ticket,
        now_ms: int,
    ) -> CoordinatorResult[JoinGroupResponse]:
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            self._timers.cancel(("session", group.group_id, request.member_id))
            return CoordinatorResult(response=join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        if group.state is DEAD:
            return CoordinatorResult(
                response=join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
            )
        if not group.supports(request.protocol_type, request.protocols):
            return CoordinatorResult(
                response=join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
            )
        if request.member_id:
            return self._join_known(group, client, request, ticket, now_ms)
        if request.group_instance_id is not None:
            return self._join_static(group, client, request, ticket, now_ms)
        return self._join_dynamic(group, client, request, ticket, now_ms)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self._config.group_max_size
        if group.state is PREPARING:
            # Counting those who joined, not the members, lets the last ones to come be turned away
            # when the limit was lowered under a running group.
            member = group.members.get(member_id)
            if member is not None and member.join_ticket is not None:
                return True
            return group.joining < limit
        if group.state in (COMPLETING, STABLE):
            return member_id in group.members or len(group.members) < limit
        return True

    def _join_dynamic(
        self,
        group: ClassicGroup,
        client: ClientContext,
        request: JoinGroupRequest,
        ticket: Ticket,
        now_ms: int,
    ) -> CoordinatorResult[JoinGroupResponse]:
        member_id = f"{client.client_id}-{self._new_id()}"
        if client.api_version < _MEMBER_ID_REQUIRED_FROM:
            return self._add_member(group, client, request, member_id, ticket, now_ms)
        group.pending_members.add(member_id)
        self._rebalance.schedule_session(
            group.group_id, member_id, now_ms + request.session_timeout_ms
        )
        return CoordinatorResult(response=join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _join_static(
        self,
        group: ClassicGroup,
        client: ClientContext,
        request: JoinGroupRequest,
        ticket: Ticket,
        now_ms: int,
    ) -> CoordinatorResult[JoinGroupResponse]:
        assert request.group_instance_id is not None
        member_id = f"{request.group_instance_id}-{self._new_id()}"
        if request.group_instance_id in group.static_members:
            return self._replace_static(group, client, request, member_id, ticket, now_ms)
        return self._add_member(group, client, request, member_id, ticket, now_ms)

    def _join_known(
        self,
        group: ClassicGroup,
        client: ClientContext,
        request: JoinGroupRequest,
        ticket: Ticket,
        now_ms: int,
    ) -> CoordinatorResult[JoinGroupResponse]:
        member_id = request.member_id
        if member_id in group.pending_members:
            if request.group_instance_id is not None:
                return CoordinatorResult(response=join_error(ErrorCode.INVALID_REQUEST, member_id))
            return self._add_member(group, client, request, member_id, ticket, now_ms)
        try:
            group.check_member(member_id, request.group_instance_id)
        except ApiError as error:
            return CoordinatorResult(response=join_error(error.code, member_id))
        member = group.members[member_id]
        changed = not member.matches(request.protocols)
        # A leader that joins again saw something that no member's metadata shows, such as a
        # new partition: that is a rebalance.
        leader_rejoins = group.state is STABLE and group.leader == member_id
        if group.state is PREPARING or changed or leader_rejoins:
            if group.state is EMPTY:
                return CoordinatorResult(
                    response=join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
                )
            return self._update_member(group, request, member, ticket, now_ms)
        if group.state in (COMPLETING, STABLE):
            # The answer to its first join was lost: the generation it missed is still good.
            return CoordinatorResult(response=self._rebalance.join_response(group, member))
        return CoordinatorResult(response=join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))

    def _add_member(
        self,
        group: ClassicGroup,
        client: ClientContext,
        request: JoinGroupRequest,
        member_id: str,
        ticket: Ticket,
        now_ms: int,
    ) -> CoordinatorResult[JoinGroupResponse]:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            protocol_pairs(request.protocols),
            is_new=True,
            join_ticket=ticket,
        )
        if group.state is PREPARING and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        # A new member cannot send heartbeats while its join is parked. If its client gives up and
        # tries again, the old join would stay for ever, so it has a long deadline of its own.
        self._rebalance.schedule_session(
            group.group_id, member_id, now_ms + self._config.group_new_member_join_timeout_ms
        )
        return self._rebalance.rebalance_or_complete(group, now_ms)

    def _update_member(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        member: ClassicMember,
        ticket: Ticket,
        now_ms: int,
    ) -> CoordinatorResult[JoinGroupResponse]:
        group.update(
            member,
            protocol_pairs(request.protocols),
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
        )
        replies = self._park_join(group, member, ticket)
        result = self._rebalance.rebalance_or_complete(group, now_ms)
        result.replies[:0] = replies
        return result

    def _park_join(self, group: ClassicGroup, member: ClassicMember, ticket: Ticket) -> list[Reply]:
        replaced = group.park_join(member, ticket)
        if replaced is None:
            return []
        return [Reply(replaced, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))]

    def _replace_static(
        self,
        group: ClassicGroup,
        client: ClientContext,
        request: JoinGroupRequest,
        new_member_id: str,
        ticket: Ticket,
        now_ms: int,
    ) -> CoordinatorResult[JoinGroupResponse]:
        """A static member came back without its id. In a stable group whose protocol stays the
        same that is no rebalance: the new id is written down and the assignment stands."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        old_member_id = group.static_members[instance_id]
        member = group.members[old_member_id]
        replies = self._fence_parked(group, member)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update(
            member,
            protocol_pairs(request.protocols),
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
        )
        if group.state is STABLE and group.select_protocol() == group.protocol:
            return self._swap_static_id(
                group, client, member, new_member_id, before, replies, now_ms
            )

        self._rename_static(group, client, instance_id, new_member_id, now_ms)
        group.park_join(member, ticket)
        if group.state is COMPLETING:
            # The leader may already be assigning to the old id: everybody starts over.
            result = self._rebalance.prepare_rebalance(group, now_ms)
        else:
            result = self._rebalance.rebalance_or_complete(group, now_ms)
        result.replies[:0] = replies
        return result

    def _swap_static_id(
        self,
        group: ClassicGroup,
        client: ClientContext,
        member: ClassicMember,
        new_member_id: str,
        before: tuple[list[tuple[str, bytes]], int, int],
        replies: list[Reply],
        now_ms: int,
    ) -> CoordinatorResult[JoinGroupResponse]:
        old_member_id = member.member_id
        was_leader = group.leader == old_member_id
        record = self._rebalance.metadata_record(
            group, group_assignments(group), renamed=(old_member_id, new_member_id)
        )
        knows_skip = client.api_version >= _SKIP_ASSIGNMENT_FROM
        response = JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol or "",
            # An old client that reads its own id here would assign, and its SyncGroup would
            # be ignored: it is told the id that no longer exists.
            leader=(new_member_id if was_leader and knows_skip else group.leader) or "",
            skip_assignment=was_leader and knows_skip,
            member_id=new_member_id,
        )

        def settle(error: ApiError | None) -> None:
            if error is not None:
                group.update(member, *before)
                response.error_code = append_refusal(error)
                response.member_id = ""
                return
            self._timers.cancel(("session", group.group_id, old_member_id))
            member.client_id, member.client_host = client.client_id, client.client_host
            self._rebalance.extend_session(group, member, now_ms)
            if was_leader and knows_skip:
                response.members = group.response_members()

        return CoordinatorResult([record], response, replies, settle=settle)

    def _rename_static(
        self,
        group: ClassicGroup,
        client: ClientContext,
        instance_id: str,
        new_member_id: str,
        now_ms: int,
    ) -> None:
        old_member_id = group.static_members[instance_id]
        self._timers.cancel(("session", group.group_id, old_member_id))
        member = group.rename_static_member(instance_id, new_member_id)
        member.client_id, member.client_host = client.client_id, client.client_host
        group.pending_sync_members.discard(old_member_id)
        self._rebalance.extend_session(group, member, now_ms)

    def _fence_parked(self, group: ClassicGroup, member: ClassicMember) -> list[Reply]:
        replies = []
        if (ticket := group.take_join(member)) is not None:
            error = join_error(ErrorCode.FENCED_INSTANCE_ID, member.member_id)
            replies.append(Reply(ticket, error))
        if member.sync_ticket is not None:
            fenced = SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
            replies.append(Reply(member.sync_ticket, fenced))
            member.sync_ticket = None
        return replies
