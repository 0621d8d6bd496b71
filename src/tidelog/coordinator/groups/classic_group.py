"""A group of the classic protocol: what it knows, and the small steps that change it.

States and the ways between them::

    EMPTY ──join──▶ PREPARING_REBALANCE ──all have joined──▶ COMPLETING_REBALANCE
    COMPLETING_REBALANCE ──the leader's sync is stored──▶ STABLE
    COMPLETING_REBALANCE, STABLE ──join, leave, a timeout──▶ PREPARING_REBALANCE
    PREPARING_REBALANCE ──nobody is left──▶ EMPTY

What a restart must bring back (generation, protocol, leader, members, assignments) is set by
`restore` from a GroupMetadata record. Joins and syncs in progress are soft: members repeat them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter

from tidelog.coordinator.records.group import GroupMetadataValue, MemberMetadata
from tidelog.coordinator.shard import Ticket
from tidelog.protocol.apis.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember
from tidelog.protocol.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError

GROUP_METADATA_VERSION = 3


class ClassicState(Enum):
    """The values are the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


def protocol_pairs(protocols: Iterable[JoinGroupRequestProtocol]) -> list[tuple[str, bytes]]:
    return [(protocol.name, protocol.metadata) for protocol in protocols]


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    is_new: bool = False
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None

    @property
    def is_waiting(self) -> bool:
        """A member whose join or sync is parked cannot send heartbeats; a new one that never
        comes back must still be found out."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def matches(self, protocols: Sequence[JoinGroupRequestProtocol]) -> bool:
        return self.protocols == protocol_pairs(protocols)


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """invariants: leader is None exactly when there are no members (outside of a rebalance);
    static_members maps to ids in members; pending_members and members are disjoint."""

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    previous_state: ClassicState = ClassicState.EMPTY
    state_since_ms: int = -1
    has_record: bool = False
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_members: set[str] = field(default_factory=set)
    pending_sync_members: set[str] = field(default_factory=set)
    new_member_added: bool = False
    joining: int = 0
    _protocol_counts: Counter[str] = field(default_factory=Counter)
    _subscribed: frozenset[str] | None = None

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == PROTOCOL_TYPE

    @property
    def can_rebalance(self) -> bool:
        return self.state in (
            ClassicState.EMPTY,
            ClassicState.COMPLETING_REBALANCE,
            ClassicState.STABLE,
        )

    @property
    def all_joined(self) -> bool:
        return self.joining == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max(map(attrgetter("rebalance_timeout_ms"), self.members.values()), default=0)

    def transition(self, state: ClassicState, now_ms: int) -> None:
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"{instance_id} is no member of group {self.group_id}",
                )
            if known != member_id:
                raise ApiError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"instance {instance_id} of group {self.group_id} is now another member",
                )
        elif member_id not in self.members:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member of group {self.group_id}"
            )

    def supports(self, protocol_type: str, protocols: Sequence[JoinGroupRequestProtocol]) -> bool:
        """True when a member with these protocols could join: the type is that of the group, and
        one protocol is common to all members."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        everyone = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._protocol_counts[p.name] == everyone for p in protocols
        )

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self._count(member.protocols, 1)
        if member.join_ticket is not None:
            self.joining += 1
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.join_ticket is not None:
                self.joining -= 1
            instance_id = member.group_instance_id
            if instance_id is not None and self.static_members.get(instance_id) == member_id:
                del self.static_members[instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync_members.discard(member_id)

    def update(
        self,
        member: ClassicMember,
        protocols: list[tuple[str, bytes]],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(member.protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park_join(self, member: ClassicMember, ticket: Ticket) -> Ticket | None:
        """Returns the ticket that this one replaces; it still wants an answer."""
        replaced = member.join_ticket
        member.join_ticket = ticket
        if replaced is None:
            self.joining += 1
        return replaced

    def take_join(self, member: ClassicMember) -> Ticket | None:
        ticket = member.join_ticket
        if ticket is not None:
            member.join_ticket = None
            self.joining -= 1
        return ticket

    def rename_static_member(self, instance_id: str, new_member_id: str) -> ClassicMember:
        """The same member under a new id; its place in the order of members is kept."""
        old_member_id = self.static_members[instance_id]
        member = self.members[old_member_id]
        self.members = {
            (new_member_id if key == old_member_id else key): value
            for key, value in self.members.items()
        }
        member.member_id = new_member_id
        self.static_members[instance_id] = new_member_id
        if self.leader == old_member_id:
            self.leader = new_member_id
        return member

    def elect_joined_leader(self) -> bool:
        """Keeps a leader that has joined, else takes the first member that has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_ticket is not None:
            return True
        for member in self.members.values():
            if member.join_ticket is not None:
                self.leader = member.member_id
                return True
        return False

    def begin_generation(self, now_ms: int) -> None:
        self.generation = self.generation + 1 if self.generation < 2**31 - 1 else 1
        self.pending_sync_members.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self._subscribed = None
            self.transition(ClassicState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol = None
            self._subscribed = None
            self.transition(ClassicState.EMPTY, now_ms)

    def select_protocol(self) -> str:
        """Of the protocols all members support, the one that most of them like best."""
        everyone = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            for name, _ in member.protocols:
                if self._protocol_counts[name] == everyone:
                    votes[name] += 1
                    break
        return votes.most_common(1)[0][0]

    def response_members(self) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol),
            )
            for member in self.members.values()
        ]

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all members; None when they cannot be known."""
        if self.protocol_type != PROTOCOL_TYPE or self.protocol is None or not self.members:
            return None
        if self._subscribed is None:
            try:
                self._subscribed = frozenset(
                    topic
                    for member in self.members.values()
                    for topic in decode_subscription(member.metadata(self.protocol)).topics
                )
            except ProtocolError:
                return None
        return self._subscribed

    def snapshot(
        self, assignments: dict[str, bytes], *, renamed: tuple[str, str] | None = None
    ) -> GroupMetadataValue:
        """The record of this generation; `renamed` (old id, new id) writes one member as new."""
        old_id, new_id = renamed or ("", "")

        def member_id(current: str) -> str:
            return new_id if renamed and current == old_id else current

        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=member_id(self.leader) if self.leader is not None else None,
            current_state_timestamp=self.state_since_ms,
            members=[
                MemberMetadata(
                    member_id=member_id(member.member_id),
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    def restore(self, value: GroupMetadataValue) -> None:
        """Takes over what the record says. A member that is here already keeps its soft state,
        a static one also when its id is new."""
        self.has_record = True
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        known = {row.member_id for row in value.members}
        for row in value.members:
            instance_id = row.group_instance_id
            if instance_id is not None and row.member_id not in self.members:
                previous_id = self.static_members.get(instance_id)
                if previous_id is not None and previous_id not in known:
                    self.rename_static_member(instance_id, row.member_id)
            member = self.members.get(row.member_id)
            if member is None:
                member = ClassicMember(
                    row.member_id,
                    instance_id,
                    row.client_id,
                    row.client_host,
                    row.session_timeout if row.rebalance_timeout < 0 else row.rebalance_timeout,
                    row.session_timeout,
                    [(value.protocol or "", row.subscription)],
                )
                self.add(member, value.protocol_type)
            member.assignment = row.assignment
        for member_id in [key for key in self.members if key not in known]:
            self.remove(member_id)
        self.leader = value.leader
        self._subscribed = None
        stable = ClassicState.STABLE if self.members else ClassicState.EMPTY
        self.transition(stable, value.current_state_timestamp)

    def _count(self, protocols: Iterable[tuple[str, bytes]], step: int) -> None:
        for name in {name for name, _ in protocols}:
            self._protocol_counts[name] += step
            if self._protocol_counts[name] == 0:
                del self._protocol_counts[name]
