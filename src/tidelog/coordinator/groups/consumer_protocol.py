"""The consumer group protocol (KIP-848): ConsumerGroupHeartbeat and its timeouts.

One heartbeat does, as far as needed: register the member or its change; bump the group epoch when
a subscription or a topic changed; compute the target assignment of that epoch; move this member
one step towards its target. A heartbeat with nothing to do writes no record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tidelog.coordinator.groups import consumer_records as write
from tidelog.coordinator.groups.assignors import ASSIGNORS, Assignment, MemberSubscription
from tidelog.coordinator.groups.client_context import ClientContext
from tidelog.coordinator.groups.consumer_draft import Draft
from tidelog.coordinator.groups.consumer_group import ConsumerGroup, ResolvedRegex
from tidelog.coordinator.groups.consumer_member import (
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    to_rows,
)
from tidelog.coordinator.groups.group_config import GroupConfig
from tidelog.coordinator.groups.reconcile import reconcile
from tidelog.coordinator.groups.topics import NoTopics, TopicsView, metadata_hash
from tidelog.coordinator.regex import InvalidRegex, Regex
from tidelog.coordinator.shard import CoordinatorResult
from tidelog.coordinator.timers import Timers
from tidelog.protocol.apis import consumer_group_heartbeat as api
from tidelog.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode

# An expression is matched again for new topics at most this often.
_REGEX_REFRESH_MIN_MS = 1_000
_FENCE_RETRY_MS = 1_000


class ConsumerGroupProtocol:
    """Drives the groups of the consumer protocol of one shard.

    find: looks a live group up for a timer.
    fence: removes a member whose time is up; the shard decides what becomes of the group.
    """

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers[CoordinatorResult[Any]],
        find: Callable[[str], ConsumerGroup | None],
        fence: Callable[[ConsumerGroup, ConsumerMember, int], CoordinatorResult[Any]],
        new_id: Callable[[], str],
    ) -> None:
        self.topics: TopicsView = NoTopics()
        self.overrides: Callable[[str, str], str | None] = lambda group_id, name: None
        self._config = config
        self._timers = timers
        self._find = find
        self._fence = fence
        self._new_id = new_id
        self._compiled: dict[str, Regex] = {}

    # ConsumerGroupHeartbeat

    def heartbeat(
        self,
        draft: Draft,
        client: ClientContext,
        request: ConsumerGroupHeartbeatRequest,
        now_ms: int,
    ) -> ConsumerGroupHeartbeatResponse:
        """Adds to the draft what the heartbeat changes. The request has been checked."""
        group = draft.group
        member_id = request.member_id or self._new_id()
        self.check_room(group, member_id)
        owned = None if request.topic_partitions is None else _owned(request.topic_partitions)
        member = self._member_of(draft, member_id, request, owned)
        updated = replace(
            member,
            instance_id=request.instance_id or member.instance_id,
            rack_id=request.rack_id or member.rack_id,
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms
                if request.rebalance_timeout_ms == -1
                else request.rebalance_timeout_ms
            ),
            server_assignor=request.server_assignor or member.server_assignor,
            subscribed_topic_names=(
                member.subscribed_topic_names
                if request.subscribed_topic_names is None
                else frozenset(request.subscribed_topic_names)
            ),
            subscribed_topic_regex=(
                member.subscribed_topic_regex
                if request.subscribed_topic_regex is None
                else request.subscribed_topic_regex or None
            ),
            client_id=client.client_id,
            client_host=client.client_host,
            classic=None,
        )
        result = self.update_member(draft, member, updated, owned, now_ms)
        self.extend_session(group.group_id, member_id, self.session_timeout_ms(group), now_ms)

        is_full = request.member_epoch == 0 or (
            request.rebalance_timeout_ms != -1
            and (
                request.subscribed_topic_names is not None
                or request.subscribed_topic_regex is not None
            )
            and owned is not None
        )
        assignment = None
        if is_full or result.assigned != member.assigned:
            assignment = api.Assignment(topic_partitions=_response_rows(result.assigned))
        return ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=result.member_epoch,
            heartbeat_interval_ms=self.heartbeat_interval_ms(group),
            assignment=assignment,
        )

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self._config.group_consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _member_of(
        self,
        draft: Draft,
        member_id: str,
        request: ConsumerGroupHeartbeatRequest,
        owned: Assignment | None,
    ) -> ConsumerMember:
        group = draft.group
        joins = request.member_epoch == 0
        if request.instance_id is not None:
            return self.static_member(
                draft, member_id, request.instance_id, joins, request.member_epoch, owned
            )
        member = group.members.get(member_id)
        if member is None:
            return ConsumerMember(member_id) if joins else group.find_member(member_id)
        _check_epoch(member, request.member_epoch, owned)
        return member

    def static_member(
        self,
        draft: Draft,
        member_id: str,
        instance_id: str,
        joins: bool,
        epoch: int | None,
        owned: Assignment | None,
    ) -> ConsumerMember:
        """The member behind an instance id; one that comes back under a new id takes its place.
        `epoch` is None for a member that speaks the classic protocol."""
        group = draft.group
        existing = group.static_member(instance_id)
        if existing is None:
            if joins:
                return ConsumerMember(member_id)
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if existing.member_id == member_id:
            if epoch is not None and not (joins and existing.member_epoch == STATIC_LEAVE_EPOCH):
                _check_epoch(existing, epoch, owned)
            if existing.member_epoch == STATIC_LEAVE_EPOCH:
                return replace(existing, member_epoch=0, previous_member_epoch=0)
            return existing
        if not joins:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member"
                f" {existing.member_id}.",
            )
        if (
            epoch is not None
            and not existing.uses_classic_protocol
            and existing.member_epoch != STATIC_LEAVE_EPOCH
        ):
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group"
                f" because the instance id is owned by {existing.member_id} member.",
            )
        renamed = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        target = group.target.get(existing.member_id, {})
        draft.add(
            *write.remove_member_records(group.group_id, existing.member_id),
            write.member_record(group.group_id, renamed),
            write.target_record(group.group_id, member_id, target),
            write.current_record(group.group_id, renamed),
        )
        return renamed

    # The steps of a heartbeat

    def update_member(
        self,
        draft: Draft,
        before: ConsumerMember,
        updated: ConsumerMember,
        owned: Assignment | None,
        now_ms: int,
    ) -> ConsumerMember:
        """Takes the group from a member's change to that member's next assignment."""
        group_id = draft.group.group_id
        known = draft.group.members.get(updated.member_id)
        if known is None or not known.same_metadata(updated):
            draft.add(write.member_record(group_id, updated))
        changed = known is None or (
            (before.subscribed_topic_names, before.subscribed_topic_regex)
            != (updated.subscribed_topic_names, updated.subscribed_topic_regex)
        )
        if draft.group.regexes or updated.subscribed_topic_regex is not None:
            changed |= self._resolve_regexes(draft, now_ms)
        self._bump_epoch(draft, changed)
        if draft.group.group_epoch > draft.group.assignment_epoch and self._may_assign(
            draft.group, now_ms
        ):
            self._update_target(draft, now_ms)
        return self._reconcile(draft, updated, owned, now_ms, has_new_subscription=changed)

    def _may_assign(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Members that come and go shortly after each other share one computation of the target."""
        interval_ms = self._time_ms(group, "assignment_interval")
        return (
            group.assignment_computed_ms == 0
            or now_ms >= group.assignment_computed_ms + interval_ms
            or now_ms < group.assignment_computed_ms  # the clock was set back
        )

    def _resolve_regexes(self, draft: Draft, now_ms: int) -> bool:
        """Brings the topics of the members' expressions up to date; true when they changed."""
        group_id = draft.group.group_id
        wanted = {
            member.subscribed_topic_regex
            for member in draft.group.members.values()
            if member.subscribed_topic_regex is not None
        }
        changed = False
        for expression in wanted:
            known = draft.group.regexes.get(expression)
            if known is not None and not self._is_stale(known, now_ms):
                continue
            matches = self.compile(expression).matches
            names = frozenset(name for name in self.topics.topics_by_name if matches(name))
            resolved = ResolvedRegex(names, self.topics.offset, now_ms)
            if known is not None and known.topics == names:
                # When it was looked at is not worth a record: a restart just looks again.
                draft.group.regexes[expression] = resolved
            else:
                changed = True
                draft.add(write.regex_record(group_id, expression, resolved))
        unused = draft.group.regexes.keys() - wanted
        draft.add(*(write.regex_record(group_id, expression, None) for expression in unused))
        return changed

    def _is_stale(self, resolved: ResolvedRegex, now_ms: int) -> bool:
        age_ms = now_ms - resolved.resolved_at_ms
        if age_ms >= self._config.group_consumer_regex_refresh_interval_ms:
            return True
        return resolved.version != self.topics.offset and age_ms >= _REGEX_REFRESH_MIN_MS

    def compile(self, expression: str) -> Regex:
        compiled = self._compiled.get(expression)
        if compiled is None:
            try:
                compiled = Regex(expression)
            except InvalidRegex as error:
                raise ApiError(
                    ErrorCode.INVALID_REGULAR_EXPRESSION,
                    f"SubscribedTopicRegex `{expression}` is not a valid regular expression:"
                    f" {error}.",
                ) from error
            if len(self._compiled) >= 1_000:
                self._compiled.clear()
            self._compiled[expression] = compiled
        return compiled

    def _bump_epoch(self, draft: Draft, changed: bool) -> None:
        group = draft.group
        if not changed and group.checked_version == self.topics.offset:
            return
        current_hash = metadata_hash(group.subscribed_topics(), self.topics)
        if changed or current_hash != group.metadata_hash:
            draft.add(write.group_epoch_record(group.group_id, group.group_epoch + 1, current_hash))
        else:
            group.checked_version = self.topics.offset

    def _update_target(self, draft: Draft, now_ms: int) -> None:
        group = draft.group
        by_name = self.topics.topics_by_name
        members = {}
        counts: dict[bytes, int] = {}
        ids_of: dict[frozenset[str], frozenset[bytes]] = {}
        for member in group.members.values():
            names = group.topics_of(member)
            if names not in ids_of:
                topics = [by_name[name] for name in names if name in by_name]
                counts.update((topic.topic_id, len(topic.partitions)) for topic in topics)
                ids_of[names] = frozenset(topic.topic_id for topic in topics)
            members[member.member_id] = MemberSubscription(ids_of[names], member.instance_id)
        default = self._config.group_consumer_assignors[0]
        assign = ASSIGNORS[group.preferred_assignor(default)]
        target = assign(members, counts, group.target)
        changes = [
            write.target_record(group.group_id, member_id, assignment)
            for member_id, assignment in target.items()
            if group.target.get(member_id) != assignment
        ]
        draft.add(
            *changes, write.assignment_epoch_record(group.group_id, group.group_epoch, now_ms)
        )

    def _reconcile(
        self,
        draft: Draft,
        member: ConsumerMember,
        owned: Assignment | None,
        now_ms: int,
        *,
        has_new_subscription: bool,
    ) -> ConsumerMember:
        group = draft.group
        current = group.members[member.member_id]
        if current.member_epoch != member.member_epoch:
            # A static member that comes back under its own id starts again from epoch 0.
            current = replace(current, member_epoch=0, previous_member_epoch=0)
        target = group.target.get(member.member_id, {})
        result = reconcile(
            current,
            group.assignment_epoch,
            target,
            owned,
            group.is_owned,
            self._is_subscribed(group, current),
            has_new_subscription=has_new_subscription,
        )
        if result == group.members[member.member_id]:
            return result
        draft.add(write.current_record(group.group_id, result))
        if not result.uses_classic_protocol:
            self._schedule_revocation_timeout(group.group_id, result, now_ms)
        return result

    def _is_subscribed(
        self, group: ConsumerGroup, member: ConsumerMember
    ) -> Callable[[bytes], bool]:
        names = group.topics_of(member)
        by_id = self.topics.topics_by_id

        def is_subscribed(topic_id: bytes) -> bool:
            topic = by_id.get(topic_id)
            return topic is not None and topic.name in names

        return is_subscribed

    # Leaving

    def leave(self, draft: Draft, member: ConsumerMember) -> None:
        """The member is gone for good: its partitions are free and the group starts an epoch.

        Its timers run on until that is in the log: if it is refused they are all that is left to
        remove a member that does not come back.
        """
        draft.add(*write.remove_member_records(draft.group.group_id, member.member_id))
        self.members_left(draft)

    def members_left(self, draft: Draft) -> None:
        group = draft.group
        wanted = {member.subscribed_topic_regex for member in group.members.values()}
        draft.add(
            *(
                write.regex_record(group.group_id, expression, None)
                for expression in group.regexes
                if expression not in wanted
            )
        )
        group = draft.group
        current_hash = metadata_hash(group.subscribed_topics(), self.topics)
        draft.add(write.group_epoch_record(group.group_id, group.group_epoch + 1, current_hash))

    def leaving_member(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerMember:
        if request.instance_id is None:
            return group.find_member(request.member_id)
        member = group.static_member(request.instance_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown."
            )
        if member.member_id != request.member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} was"
                f" fenced by member {member.member_id}.",
            )
        return member

    def leave_for_a_while(self, draft: Draft, member: ConsumerMember) -> None:
        """A static member keeps its partitions until it comes back or its session ends."""
        away = replace(member, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation={})
        draft.add(write.current_record(draft.group.group_id, away))

    # Timers

    def session_timeout_ms(self, group: ConsumerGroup) -> int:
        return self._time_ms(group, "session_timeout")

    def heartbeat_interval_ms(self, group: ConsumerGroup) -> int:
        return self._time_ms(group, "heartbeat_interval")

    def _time_ms(self, group: ConsumerGroup, name: str) -> int:
        """The group's own setting within the coordinator's bounds, else the coordinator's."""
        config = self._config
        said = self.overrides(group.group_id, f"consumer.{name.replace('_', '.')}.ms")
        if said is None:
            default: int = getattr(config, f"group_consumer_{name}_ms")
            return default
        low: int = getattr(config, f"group_consumer_min_{name}_ms")
        high: int = getattr(config, f"group_consumer_max_{name}_ms")
        return min(max(int(said), low), high)

    def extend_session(self, group_id: str, member_id: str, timeout_ms: int, now_ms: int) -> None:
        self.schedule_fencing("session", group_id, member_id, now_ms + timeout_ms)

    def schedule_fencing(self, kind: str, group_id: str, member_id: str, deadline_ms: int) -> None:
        """The member is removed at the deadline, unless it does in time what it has to do."""
        self._timers.schedule(
            (kind, group_id, member_id),
            deadline_ms,
            lambda due_ms: self._time_is_up(kind, group_id, member_id, due_ms),
        )

    def _time_is_up(
        self, kind: str, group_id: str, member_id: str, now_ms: int
    ) -> CoordinatorResult[Any]:
        group = self._find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return CoordinatorResult()
        result = self._fence(group, member, now_ms)
        settle_fence = result.settle

        def settle(error: ApiError | None) -> CoordinatorResult[Any] | None:
            if error is not None:
                # The timer has fired and is gone, but the member is still there.
                retry_ms = now_ms + _FENCE_RETRY_MS
                self.schedule_fencing(kind, group_id, member_id, retry_ms)
            return None if settle_fence is None else settle_fence(error)

        result.settle = settle
        return result

    def _schedule_revocation_timeout(
        self, group_id: str, member: ConsumerMember, now_ms: int
    ) -> None:
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            return
        member_id, epoch = member.member_id, member.member_epoch

        def due(due_ms: int) -> CoordinatorResult[Any]:
            # What is in the log counts: it may have refused what was decided since.
            group = self._find(group_id)
            current = None if group is None else group.members.get(member_id)
            if (
                current is None
                or current.member_epoch != epoch
                or current.state is not MemberState.UNREVOKED_PARTITIONS
            ):
                return CoordinatorResult()
            return self._time_is_up("rebalance", group_id, member_id, due_ms)

        name = ("rebalance", group_id, member_id)
        self._timers.schedule(name, now_ms + member.rebalance_timeout_ms, due)

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        for kind in ("session", "rebalance", "rejoin", "resync"):
            self._timers.cancel((kind, group_id, member_id))

    def loaded(self, group: ConsumerGroup, now_ms: int) -> None:
        """Sessions and revocations get their full time again after a restart."""
        for member in group.members.values():
            timeout_ms = self.session_timeout_ms(group)
            if member.classic is not None:
                timeout_ms = member.classic.session_timeout_ms
            self.extend_session(group.group_id, member.member_id, timeout_ms, now_ms)
            if member.classic is None:
                self._schedule_revocation_timeout(group.group_id, member, now_ms)


def _check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    if epoch == member.member_epoch or epoch == 0:
        # A join (epoch 0) owns nothing, so nothing can be owned twice by taking it.
        return
    if epoch == member.previous_member_epoch and _is_part_of(owned, member.assigned):
        # The answer that carried the new epoch was lost.
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has the member epoch {epoch} and the group coordinator knows"
        f" {member.member_epoch}. The member must abandon all its partitions and rejoin.",
    )


def _is_part_of(owned: Assignment | None, assigned: Assignment) -> bool:
    if owned is None:
        return False
    return all(partitions <= assigned.get(t, frozenset()) for t, partitions in owned.items())


def _owned(rows: Iterable[api.TopicPartitions]) -> Assignment:
    return {row.topic_id: frozenset(row.partitions) for row in rows if row.partitions}


def _response_rows(assignment: Assignment) -> list[api.TopicPartitions]:
    return [
        api.TopicPartitions(topic_id=row.topic_id, partitions=row.partitions)
        for row in to_rows(assignment)
    ]
