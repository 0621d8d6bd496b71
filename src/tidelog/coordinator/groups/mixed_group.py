"""Members that speak the classic protocol in a group of the consumer protocol.

They see their member epoch as the generation. A heartbeat tells them to join again whenever they
have to move towards their target; the join carries what they own, which is how they let go of
partitions; the sync brings what they have now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tidelog.coordinator.groups import consumer_records as write
from tidelog.coordinator.groups.client_context import ClientContext
from tidelog.coordinator.groups.consumer_draft import Draft
from tidelog.coordinator.groups.consumer_group import ConsumerGroup
from tidelog.coordinator.groups.consumer_member import ConsumerMember, MemberState
from tidelog.coordinator.groups.consumer_protocol import ConsumerGroupProtocol
from tidelog.coordinator.groups.migration import by_topic_id, classic_assignment
from tidelog.coordinator.records.group import ClassicMemberMetadata, ClassicProtocol
from tidelog.coordinator.shard import CoordinatorResult
from tidelog.coordinator.timers import Timers
from tidelog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.apis.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tidelog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.protocol.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError

_MEMBER_ID_REQUIRED_FROM = 4


@dataclass(slots=True)
class ClassicJoin:
    """A join that was accepted; `replaced` is the id of the static member whose place it took."""

    member: ConsumerMember
    response: JoinGroupResponse
    replaced: str | None = None


class MixedGroups:
    """The classic requests, on a group of the consumer protocol. Raises ApiError."""

    def __init__(
        self,
        protocol: ConsumerGroupProtocol,
        timers: Timers[CoordinatorResult[Any]],
        new_id: Callable[[], str],
    ) -> None:
        self._protocol = protocol
        self._timers = timers
        self._new_id = new_id

    def join(
        self, draft: Draft, client: ClientContext, request: JoinGroupRequest, now_ms: int
    ) -> ClassicJoin:
        group = draft.group
        is_new = not request.member_id
        member_id = request.member_id or f"{client.client_id}-{self._new_id()}"
        self._protocol.check_room(group, member_id)
        _check_protocols(group, member_id, request)
        instance_id = request.group_instance_id
        if is_new and instance_id is None and client.api_version >= _MEMBER_ID_REQUIRED_FROM:
            raise MemberIdRequired(member_id)
        replaced = group.static_members.get(instance_id) if instance_id is not None else None
        if instance_id is None:
            member = group.members.get(member_id) or ConsumerMember(member_id)
        else:
            member = self._protocol.static_member(draft, member_id, instance_id, is_new, None, None)
        try:
            subscription = decode_subscription(request.protocols[0].metadata)
        except ProtocolError as error:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the subscription of {member_id} is not that of a consumer: {error}",
            ) from error
        updated = replace(
            member,
            instance_id=instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            server_assignor=None,
            subscribed_topic_names=frozenset(subscription.topics),
            subscribed_topic_regex=None,
            client_id=client.client_id,
            client_host=client.client_host,
            classic=ClassicMemberMetadata(
                session_timeout_ms=request.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=p.name, metadata=p.metadata) for p in request.protocols
                ],
            ),
        )
        owned = by_topic_id(subscription.owned_partitions, self._protocol.topics)
        result = self._protocol.update_member(draft, member, updated, owned, now_ms)
        response = JoinGroupResponse(
            generation_id=result.member_epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
            member_id=member_id,
        )
        return ClassicJoin(result, response, replaced)

    def joined(self, group_id: str, join: ClassicJoin, now_ms: int) -> None:
        """Starts the timers of a join that is in the log: it must sync in time."""
        member = join.member
        assert member.classic is not None
        session_ms = member.classic.session_timeout_ms
        self._timers.cancel(("rejoin", group_id, member.member_id))
        self._protocol.extend_session(group_id, member.member_id, session_ms, now_ms)
        self._schedule("resync", group_id, member, now_ms)

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int
    ) -> SyncGroupResponse:
        member = self._member(group, request.member_id, request.group_instance_id)
        assert member.classic is not None
        _check_generation(member, request.generation_id)
        protocol = member.classic.supported_protocols[0].name
        if (request.protocol_type or PROTOCOL_TYPE) != PROTOCOL_TYPE or (
            request.protocol_name or protocol
        ) != protocol:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        revoking = member.state is MemberState.UNREVOKED_PARTITIONS
        if group.assignment_epoch > member.member_epoch and not revoking:
            self._ask_to_rejoin(group.group_id, member, now_ms)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._timers.cancel(("resync", group.group_id, member.member_id))
        session_ms = member.classic.session_timeout_ms
        self._protocol.extend_session(group.group_id, member.member_id, session_ms, now_ms)
        return SyncGroupResponse(
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol,
            assignment=classic_assignment(member, self._protocol.topics),
        )

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int
    ) -> HeartbeatResponse:
        member = self._member(group, request.member_id, request.group_instance_id)
        assert member.classic is not None
        _check_generation(member, request.generation_id)
        session_ms = member.classic.session_timeout_ms
        self._protocol.extend_session(group.group_id, member.member_id, session_ms, now_ms)
        unreleased = member.state is MemberState.UNRELEASED_PARTITIONS
        if (
            member.member_epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (unreleased and not group.waits_for_others(member))
        ):
            self._ask_to_rejoin(group.group_id, member, now_ms)
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def leave(
        self, draft: Draft, request: LeaveGroupRequest
    ) -> tuple[LeaveGroupResponse, list[str]]:
        """Removes those who may leave, and names them; the caller looks at what is left of the
        group."""
        rows = []
        left: list[str] = []
        for identity in request.members:
            error = ErrorCode.NONE
            try:
                member = self._leaving(draft.group, identity)
                draft.add(*write.remove_member_records(draft.group.group_id, member.member_id))
                left.append(member.member_id)
            except ApiError as refused:
                error = refused.code
            rows.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
            )
        if left:
            self._protocol.members_left(draft)
        return LeaveGroupResponse(members=rows), left

    def _leaving(self, group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
        if identity.group_instance_id is not None and not identity.member_id:
            member = group.static_member(identity.group_instance_id)
            if member is None or not member.uses_classic_protocol:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            return member
        return self._member(group, identity.member_id, identity.group_instance_id)

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> ConsumerMember:
        if instance_id is None:
            member = group.find_member(member_id)
        else:
            known = group.static_member(instance_id)
            if known is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
                )
            if known.member_id != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
            member = known
        if not member.uses_classic_protocol:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} does not use the classic protocol"
            )
        return member

    def _ask_to_rejoin(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        if ("rejoin", group_id, member.member_id) not in self._timers:
            self._schedule("rejoin", group_id, member, now_ms)

    def _schedule(self, kind: str, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        member_id = member.member_id
        deadline_ms = now_ms + member.rebalance_timeout_ms
        self._protocol.schedule_fencing(kind, group_id, member_id, deadline_ms)


class MemberIdRequired(Exception):
    """The client is to join again with this id."""

    def __init__(self, member_id: str) -> None:
        super().__init__(member_id)
        self.member_id = member_id


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if member.member_epoch != generation:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"{member.member_id} is at epoch {member.member_epoch}, not {generation}",
        )


def _check_protocols(group: ConsumerGroup, member_id: str, request: JoinGroupRequest) -> None:
    others = [
        member.classic
        for member in group.members.values()
        if member.classic is not None and member.member_id != member_id
    ]
    counts = Counter(p.name for classic in others for p in classic.supported_protocols)
    if request.protocol_type != PROTOCOL_TYPE or not any(
        counts[p.name] == len(others) for p in request.protocols
    ):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the protocols of {member_id} are not supported by group {group.group_id}",
        )
