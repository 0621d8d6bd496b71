"""A member of a classic group: joins, is assigned partitions by the leader, heartbeats, commits."""

from __future__ import annotations

from tidelog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.apis.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tidelog.protocol.apis.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tidelog.protocol.apis.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tidelog.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.workloads.asking import (
    GROUP,
    RETRIABLE,
    find_coordinator,
)
from tidelog.testing.simulation.workloads.group_offsets import Group, Membership

_PROTOCOL = "range"
_RETRY_S = 0.03
_REJOIN = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
)


class ClassicMember:
    """Eager: it gives everything up before it joins again."""

    def __init__(self, group: Group, membership: Membership, session_timeout_ms: int) -> None:
        self._group = group
        self._me = membership
        self._session_timeout_ms = session_timeout_ms
        self._partitions = 0
        """As many there were when it joined: a member joins again when there are more."""
        is_static = membership.instance_id is not None
        membership.commit_version_min = 7 if is_static else 2
        random = membership.client.random
        self._join_version = random.randint(5 if is_static else 2, 9)
        self._version = random.randint(3, 4) if is_static else random.randint(1, 4)

    @property
    def _client(self) -> SimulatedClient:
        return self._me.client

    async def run(self) -> None:
        await find_coordinator(self._client, self._group.name, GROUP)
        while not self._group.is_settled:
            joined = await self._join()
            if joined is None or not await self._sync(joined):
                await self._client.sleep(_RETRY_S)
                continue
            self._me.is_steady = True
            await self._work()
            self._me.is_steady = False
            self._me.owned.clear()

    async def _join(self) -> JoinGroupResponse | None:
        me, group = self._me, self._group
        self._partitions = len(group.workspace.partitions)
        topics = sorted({partition.topic for partition in group.workspace.partitions})
        subscription = encode_subscription(ConsumerProtocolSubscription(topics=topics), 1)
        request = JoinGroupRequest(
            group_id=group.name,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._session_timeout_ms,
            member_id=me.member_id,
            group_instance_id=me.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=subscription)],
        )
        try:
            answer = await self._client.call(
                request, JoinGroupResponse, version_max=self._join_version
            )
        except PeerError as error:
            self._client.trace(f"join: {error}")
            return None
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            me.member_id = answer.member_id
            return None
        self._client.trace(f"join: {code.name}, generation {answer.generation_id}")
        if self._is_good(code, "JoinGroup"):
            me.member_id = answer.member_id
            me.epoch = answer.generation_id
            return answer
        return None

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        me, group = self._me, self._group
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == me.member_id and joined.members and not joined.skip_assignment:
            assignments = self._assign([each.member_id for each in joined.members])
        request = SyncGroupRequest(
            group_id=group.name,
            generation_id=me.epoch,
            member_id=me.member_id,
            group_instance_id=me.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=_PROTOCOL,
            assignments=assignments,
        )
        try:
            answer = await self._client.call(request, SyncGroupResponse, version_max=self._version)
        except PeerError as error:
            self._client.trace(f"sync: {error}")
            return False
        if not self._is_good(ErrorCode(answer.error_code), "SyncGroup"):
            return False
        me.owned = {
            TopicPartition(row.topic, index)
            for row in decode_assignment(answer.assignment).assigned_partitions
            for index in row.partitions
        }
        owned = sorted(me.owned)
        self._client.trace(f"owns {', '.join(map(str, owned))} in generation {me.epoch}")
        return await group.take(me, owned)

    def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """Each member gets a range of every topic."""
        shares: dict[str, dict[str, list[int]]] = {member: {} for member in members}
        for topic, index in self._group.workspace.partitions:
            of_topic = [each for each in self._group.workspace.partitions if each.topic == topic]
            member = members[index * len(members) // len(of_topic)]
            shares[member].setdefault(topic, []).append(index)
        return [
            SyncGroupRequestAssignment(
                member_id=member,
                assignment=encode_assignment(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[
                            TopicPartitions(topic=topic, partitions=indexes)
                            for topic, indexes in share.items()
                        ]
                    ),
                    1,
                ),
            )
            for member, share in shares.items()
        ]

    async def _work(self) -> None:
        """Heartbeats and commits until the group rebalances."""
        group, me, client = self._group, self._me, self._client
        while True:
            if not await self._heartbeat() or self._partitions != len(group.workspace.partitions):
                return
            group.notice_settling()
            if group.is_settled:
                return
            if not group.workspace.is_over:
                if me.owned and client.random.random() < 0.6:
                    code = await group.commit(me, client.random.choice(sorted(me.owned)))
                    if code and not self._is_good(code, "OffsetCommit"):
                        return
                if client.random.random() < 0.03:
                    await self._leave()
                    return
            await client.sleep(0.005 + client.random.random() * 0.03)

    async def _heartbeat(self) -> bool:
        me = self._me
        request = HeartbeatRequest(
            group_id=self._group.name,
            generation_id=me.epoch,
            member_id=me.member_id,
            group_instance_id=me.instance_id,
        )
        try:
            answer = await self._client.call(request, HeartbeatResponse, version_max=self._version)
        except PeerError:
            return True
        return self._is_good(ErrorCode(answer.error_code), "Heartbeat")

    async def _leave(self) -> None:
        me, client = self._me, self._client
        identity = MemberIdentity(member_id=me.member_id, group_instance_id=me.instance_id)
        request = LeaveGroupRequest(
            group_id=self._group.name, member_id=me.member_id, members=[identity]
        )
        me.owned.clear()
        me.is_steady = False
        try:
            await client.call(request, LeaveGroupResponse, version_max=self._version)
        except PeerError:
            pass
        client.trace("leaves")
        me.member_id = ""
        await client.sleep(client.random.random() * 0.2)

    def _is_good(self, code: ErrorCode, what: str) -> bool:
        """False when it has to join again, or ask again."""
        if code is ErrorCode.NONE:
            return True
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._me.member_id = ""
        elif code not in _REJOIN and code not in RETRIABLE:
            self._group.workspace.problem(self._client.name, f"{what}: {code.name}")
        return False
