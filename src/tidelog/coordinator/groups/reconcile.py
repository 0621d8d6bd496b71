"""How a member moves from what it has to what it should have.

Worked example. A owns t-0 and t-1 at epoch 5; B joins and the target of epoch 6 gives t-1 to B.

* A's next heartbeat: t-1 is not in its target. A stays at epoch 5 in UNREVOKED_PARTITIONS with t-0
  assigned and t-1 pending revocation. A stops reading t-1 and commits its offset under epoch 5.
* B's heartbeat: t-1 is owned by A, so B goes to epoch 6 in UNRELEASED_PARTITIONS with nothing.
* A reports only t-0 as owned: t-1 is free, A goes to epoch 6 and is STABLE.
* B's next heartbeat: t-1 is free, B gets it and is STABLE.

So a partition has one owner at every moment, and it changes hands only after its owner let go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidelog.coordinator.groups.assignors import Assignment
from tidelog.coordinator.groups.consumer_member import ConsumerMember, MemberState
from tidelog.protocol.errors import ApiError, ErrorCode

_NONE: frozenset[int] = frozenset()


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_owned: Callable[[bytes, int], bool],
    is_subscribed: Callable[[bytes], bool],
    *,
    has_new_subscription: bool,
) -> ConsumerMember:
    """The member after this heartbeat.

    owned: what the member says it has; None when it did not say.
    is_owned: whether any member owns a partition now.
    is_subscribed: whether a topic is part of the member's subscription. The target may be older
        than that, and then nothing of the other topics counts.
    """
    state, epoch = member.state, member.member_epoch
    is_stable = state is MemberState.STABLE and epoch == target_epoch
    is_revoking = state is MemberState.UNREVOKED_PARTITIONS and _still_owns(
        owned, member.pending_revocation
    )
    if is_stable or is_revoking:
        return _shrunk(member, owned, is_subscribed) if has_new_subscription else member
    if state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"member {member.member_id} is in a state this broker does not know; it must"
                " rejoin",
            )
        epoch = target_epoch
    target = {topic_id: indexes for topic_id, indexes in target.items() if is_subscribed(topic_id)}
    return _advance(member, epoch, target_epoch, target, owned, is_owned)


def _shrunk(
    member: ConsumerMember, owned: Assignment | None, is_subscribed: Callable[[bytes], bool]
) -> ConsumerMember:
    """Without the topics that it does not subscribe to any more."""
    keeps: Assignment = {}
    revokes = dict(member.pending_revocation)
    for topic_id, indexes in member.assigned.items():
        if is_subscribed(topic_id):
            keeps[topic_id] = indexes
        else:
            revokes[topic_id] = revokes.get(topic_id, _NONE) | indexes
    if len(keeps) == len(member.assigned):
        return member
    if _still_owns(owned, revokes):
        epoch = member.member_epoch
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, keeps, revokes)
    return replace(member, assigned=keeps)


def _still_owns(owned: Assignment | None, revoked: Assignment) -> bool:
    if owned is None:
        return True
    return any(not revoked.get(topic_id, _NONE).isdisjoint(owned[topic_id]) for topic_id in owned)


def _advance(
    member: ConsumerMember,
    revoking_epoch: int,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_owned: Callable[[bytes, int], bool],
) -> ConsumerMember:
    keeps: Assignment = {}
    revokes: Assignment = {}
    gains: Assignment = {}
    waits = False
    for topic_id in {**target, **member.assigned}:
        wanted = target.get(topic_id, _NONE)
        has = member.assigned.get(topic_id, _NONE)
        if kept := has & wanted:
            keeps[topic_id] = kept
        if lost := has - wanted:
            revokes[topic_id] = lost
        missing = wanted - has
        own = member.pending_revocation.get(topic_id, _NONE)  # and let go by now
        free = frozenset(
            index for index in missing if index in own or not is_owned(topic_id, index)
        )
        waits |= len(free) < len(missing)
        if free:
            gains[topic_id] = free
    if revokes and _still_owns(owned, revokes):
        return _moved(member, revoking_epoch, MemberState.UNREVOKED_PARTITIONS, keeps, revokes)
    assigned = dict(keeps)
    for topic_id, free in gains.items():
        assigned[topic_id] = assigned.get(topic_id, _NONE) | free
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _moved(member, target_epoch, state, assigned, {})


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Assignment,
    pending_revocation: Assignment,
) -> ConsumerMember:
    # The epoch before is kept: the answer with the new one may get lost, then the member asks
    # again with the old one.
    same_epoch = epoch == member.member_epoch
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=member.previous_member_epoch if same_epoch else member.member_epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )
