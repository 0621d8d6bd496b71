"""A member of a group with the consumer protocol: the coordinator assigns, by heartbeats alone."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
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

_JOIN, _LEAVE, _LEAVE_FOR_A_WHILE = 0, -1, -2
_FENCED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    # Without its last member of this protocol a mixed group becomes a classic one.
    ErrorCode.GROUP_ID_NOT_FOUND,
)
_REBALANCE_TIMEOUT_MS = 500


class ConsumerMember:
    """Gives up what its assignment lacks, takes what is new, and says so with a heartbeat."""

    def __init__(
        self, group: Group, membership: Membership, topic_names: Mapping[bytes, str]
    ) -> None:
        self._group = group
        self._me = membership
        self._names = topic_names
        self._ids = {name: topic_id for topic_id, name in topic_names.items()}
        self._tells_everything = True
        self._has_changed = False
        membership.member_id = membership.client.name
        membership.epoch = _JOIN
        membership.commit_version_min = 9

    @property
    def _client(self) -> SimulatedClient:
        return self._me.client

    async def run(self) -> None:
        group, me, client = self._group, self._me, self._client
        await find_coordinator(client, group.name, GROUP)
        while not group.is_settled:
            await self._heartbeat()
            group.notice_settling()
            if not group.workspace.is_over and me.epoch > 0:
                if me.owned and client.random.random() < 0.6:
                    await self._commit()
                if client.random.random() < 0.03:
                    await self._leave()
            await client.sleep(0.005 + client.random.random() * 0.03)

    async def _heartbeat(self) -> None:
        me = self._me
        tells = self._tells_everything or me.epoch == _JOIN
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group.name,
            member_id=me.member_id,
            member_epoch=me.epoch,
            instance_id=me.instance_id,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS if tells else -1,
            subscribed_topic_names=sorted(self._ids) if tells else None,
            topic_partitions=self._owned_rows() if tells or self._has_changed else None,
        )
        try:
            answer = await self._client.call(request, ConsumerGroupHeartbeatResponse)
        except PeerError as error:
            self._client.trace(f"heartbeat: {error}")
            self._tells_everything = True
            return
        code = ErrorCode(answer.error_code)
        if code in _FENCED:
            self._client.trace(f"heartbeat in epoch {me.epoch}: {code.name}")
            self._lose_everything()
        elif code is ErrorCode.NONE:
            self._tells_everything = self._has_changed = False
            await self._hear(answer)
        elif code not in RETRIABLE and code is not ErrorCode.UNRELEASED_INSTANCE_ID:
            self._group.workspace.problem(
                self._client.name, f"heartbeat in epoch {me.epoch}: {code.name}"
            )

    async def _hear(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        me = self._me
        me.epoch = answer.member_epoch
        if answer.assignment is None:
            me.is_steady = True
            return
        assigned = {
            TopicPartition(self._names[row.topic_id], index)
            for row in answer.assignment.topic_partitions
            for index in row.partitions
        }
        new = sorted(assigned - me.owned)
        self._has_changed = assigned != me.owned
        me.is_steady = not self._has_changed
        me.owned &= assigned
        if await self._group.take(me, new):
            me.owned |= assigned
            if self._has_changed:
                owned = ", ".join(map(str, sorted(me.owned)))
                self._client.trace(f"owns {owned} in epoch {me.epoch}")
        else:
            # Not a member any more, or not in this epoch: the next heartbeat tells.
            self._tells_everything = True

    async def _commit(self) -> None:
        me, client = self._me, self._client
        code = await self._group.commit(me, client.random.choice(sorted(me.owned)))
        if code in _FENCED:
            self._lose_everything()
        elif code and code is not ErrorCode.STALE_MEMBER_EPOCH:
            self._group.workspace.problem(client.name, f"OffsetCommit: {code.name}")

    async def _leave(self) -> None:
        me, client = self._me, self._client
        is_back_soon = me.instance_id is not None and client.random.random() < 0.5
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group.name,
            member_id=me.member_id,
            instance_id=me.instance_id,
            member_epoch=_LEAVE_FOR_A_WHILE if is_back_soon else _LEAVE,
        )
        self._lose_everything()
        client.trace("leaves")
        try:
            await client.call(request, ConsumerGroupHeartbeatResponse)
        except PeerError:
            pass
        await client.sleep(client.random.random() * 0.2)

    def _lose_everything(self) -> None:
        self._me.owned.clear()
        self._me.is_steady = False
        self._me.epoch = _JOIN

    def _owned_rows(self) -> list[TopicPartitions]:
        rows: dict[str, list[int]] = {}
        for topic, index in sorted(self._me.owned):
            rows.setdefault(topic, []).append(index)
        return [
            TopicPartitions(topic_id=self._ids[topic], partitions=indexes)
            for topic, indexes in rows.items()
        ]
