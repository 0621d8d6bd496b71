"""Drives a group shard as the server would, without one: a log in memory and a clock by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tidelog.coordinator.group_shard import GroupShard
from tidelog.coordinator.groups.client_context import ClientContext
from tidelog.coordinator.groups.group_config import GroupConfig
from tidelog.coordinator.records.consumer_offsets import CONSUMER_OFFSETS
from tidelog.coordinator.shard import CoordinatorResult
from tidelog.promise import Promise
from tidelog.protocol.apis import consumer_group_heartbeat as consumer_api
from tidelog.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.apis.heartbeat import HeartbeatRequest
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
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.apis.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tidelog.protocol.apis.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tidelog.protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartitions,
    encode_subscription,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.uuids import ZERO_UUID


class Ticket(Promise[Any]):
    """A parked request; answered exactly once."""

    @property
    def response(self) -> Any:
        return self.result() if self.is_done else None

    @property
    def waits(self) -> bool:
        return self.response is None


@dataclass(frozen=True)
class FakeTopic:
    name: str
    topic_id: bytes
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class FakeTopics:
    topics_by_name: dict[str, FakeTopic] = field(default_factory=dict)
    topics_by_id: dict[bytes, FakeTopic] = field(default_factory=dict)
    offset: int = 0

    def with_topic(self, name: str, partition_count: int, generation: int = 0) -> FakeTopics:
        topic = FakeTopic(name, topic_id(name, generation), tuple(range(partition_count)))
        by_name = {**self.topics_by_name, name: topic}
        return FakeTopics(by_name, {t.topic_id: t for t in by_name.values()}, self.offset + 1)

    def without_topic(self, name: str) -> FakeTopics:
        by_name = {key: value for key, value in self.topics_by_name.items() if key != name}
        return FakeTopics(by_name, {t.topic_id: t for t in by_name.values()}, self.offset + 1)


def topic_id(name: str, generation: int = 0) -> bytes:
    return f"{name}-{generation}".encode().ljust(16, b"\0")[:16]


FAST = GroupConfig(group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0)


class Driver:
    """One shard with its log. `refuse` makes the log refuse the next append with that error."""

    def __init__(self, config: GroupConfig = FAST, topics: FakeTopics | None = None) -> None:
        self.config = config
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None, int, int]] = []
        self.refuse: ErrorCode | None = None
        self._ids = 0
        self.topics = topics or FakeTopics().with_topic("t", 4)
        self.shard = self._make()
        self._run_all(self.shard.loaded(self.now_ms))

    def _make(self) -> GroupShard:
        shard = GroupShard(self.config, self._new_id)
        shard.set_topics(self.topics)
        return shard

    def _new_id(self) -> str:
        self._ids += 1
        return f"id{self._ids}"

    # The host's part

    def run(self, result: CoordinatorResult[Any]) -> Any:
        error: ApiError | None = None
        if result.records:
            if self.refuse is not None:
                error, self.refuse = ApiError(self.refuse), None
            else:
                for record in result.records:
                    key, value = CONSUMER_OFFSETS.encode(record)
                    self.log.append((key, value, result.producer_id, result.producer_epoch))
                    decoded = CONSUMER_OFFSETS.decode(key, value)
                    assert decoded is not None
                    self.shard.replay(decoded, result.producer_id, result.producer_epoch)
        follow_up = None if result.settle is None else result.settle(error)
        if follow_up is not None:
            self.run(follow_up)
        for reply in result.replies:
            if error is not None:
                reply.response.error_code = error.code
            reply.ticket.resolve(reply.response)
        if error is not None and result.response is not None:
            raise error
        return result.response

    def _run_all(self, results: Iterable[CoordinatorResult[Any]]) -> None:
        for result in results:
            self.run(result)

    def advance(self, delta_ms: int) -> None:
        """Lets time pass, stopping at every deadline on the way."""
        end_ms = self.now_ms + delta_ms
        while True:
            deadline_ms = self.shard.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self._run_all(self.shard.tick(self.now_ms))
        self.now_ms = end_ms

    def set_topics(self, topics: FakeTopics) -> None:
        deleted = self.topics.topics_by_name.keys() - topics.topics_by_name.keys()
        self.topics = topics
        self.run(self.shard.set_topics(topics, sorted(deleted)))

    def restart(self) -> None:
        """A new shard from the log, by the short way of loading."""
        self.shard = self._make()
        for key, value, producer_id, producer_epoch in self.log:
            self.shard.replay_pairs([(key, value)], producer_id, producer_epoch)
        self._run_all(self.shard.loaded(self.now_ms))

    # Classic protocol

    def join(
        self,
        group: str = "g",
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Iterable[tuple[str, bytes]] = (("range", b"m"),),
        protocol_type: str = "consumer",
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        client_id: str = "c",
    ) -> Ticket:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
        )
        ticket = Ticket()
        client = ClientContext(client_id, "/127.0.0.1", version)
        try:
            response = self.run(self.shard.join(client, request, ticket, self.now_ms))
        except ApiError as error:
            response = JoinGroupResponse(error_code=error.code)
        if response is not None:
            ticket.resolve(response)
        return ticket

    def join_with_id(self, group: str = "g", **options: Any) -> Ticket:
        """Joins as a new client does: first for the id, then with it."""
        first = self.join(group, **options)
        assert first.response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return self.join(group, first.response.member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        group: str = "g",
        instance_id: str | None = None,
    ) -> Ticket:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (assignments or {}).items()
            ],
        )
        ticket = Ticket()
        response: SyncGroupResponse | None = self.run(self.shard.sync(request, ticket, self.now_ms))
        if response is not None:
            ticket.resolve(response)
        return ticket

    def heartbeat(
        self, member_id: str, generation: int, group: str = "g", instance_id: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        try:
            return ErrorCode(self.shard.heartbeat(request, self.now_ms).error_code)
        except ApiError as error:
            return error.code

    def leave(
        self, *members: str, group: str = "g", instance_ids: tuple[str, ...] = ()
    ) -> list[ErrorCode]:
        identities = [MemberIdentity(member_id=member_id) for member_id in members]
        identities += [MemberIdentity(group_instance_id=each) for each in instance_ids]
        request = LeaveGroupRequest(group_id=group, members=identities)
        try:
            response: LeaveGroupResponse = self.run(self.shard.leave(request, self.now_ms))
        except ApiError as error:
            return [error.code]
        return [ErrorCode(row.error_code) for row in response.members]

    def stable_group(self, count: int, group: str = "g", **options: Any) -> list[str]:
        """A classic group with this many members, the first of them its leader."""
        tickets = [self.join(group, version=3, **options) for _ in range(count)]
        self.advance(1)
        while any(ticket.waits for ticket in tickets):
            self.advance(10)
        generations = {ticket.response.generation_id for ticket in tickets}
        members = [ticket.response.member_id for ticket in tickets]
        if len(generations) > 1:
            tickets = [self.join(group, member_id, version=3, **options) for member_id in members]
        generation = tickets[0].response.generation_id
        leader = tickets[0].response.leader
        assignments = {m: f"a-{m}".encode() for m in members}
        for member_id in members:
            if member_id != leader:
                self.sync(member_id, generation, group=group)
        assert self.sync(leader, generation, assignments, group=group).response.error_code == 0
        return sorted(members, key=lambda each: each != leader)

    # Consumer protocol

    def consumer(
        self,
        member_id: str,
        epoch: int,
        *,
        group: str = "g",
        topics: Iterable[str] | None = None,
        regex: str | None = None,
        owned: dict[str, set[int]] | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
        version: int = 1,
    ) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat; ApiError when it is refused."""
        if epoch == 0:
            rebalance_ms = 30_000 if rebalance_ms == -1 else rebalance_ms
            owned = {}
            if topics is None and regex is None:
                topics = ["t"]
        rows = None
        if owned is not None:
            rows = [
                consumer_api.TopicPartitions(
                    topic_id=self.topics.topics_by_name[name].topic_id, partitions=sorted(indexes)
                )
                for name, indexes in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=rows,
        )
        client = ClientContext("c", "/127.0.0.1", version)
        response: ConsumerGroupHeartbeatResponse = self.run(
            self.shard.consumer_heartbeat(client, request, self.now_ms)
        )
        return response

    def assigned(self, response: ConsumerGroupHeartbeatResponse) -> dict[str, set[int]] | None:
        """By topic name; None when the response brings no assignment."""
        if response.assignment is None:
            return None
        return {
            self.topics.topics_by_id[row.topic_id].name: set(row.partitions)
            for row in response.assignment.topic_partitions
        }

    # Offsets

    def commit(
        self,
        group: str = "g",
        member_id: str = "",
        epoch: int = -1,
        offset: int = 7,
        *,
        topic: str = "t",
        partition: int = 0,
        metadata: str | None = "",
        version: int = 9,
        retention_ms: int = -1,
        instance_id: str | None = None,
    ) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=2,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )
        client = ClientContext("c", "/127.0.0.1", version)
        try:
            response = self.run(self.shard.offsets.commit(client, request, self.now_ms))
        except ApiError as error:
            return error.code
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def fetch(
        self,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        epoch: int = -1,
        by_id: bytes = ZERO_UUID,
    ) -> Any:
        """The row of one partition; the group's error if it has one."""
        request = OffsetFetchRequestGroup(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            topics=[
                OffsetFetchRequestTopics(name=topic, topic_id=by_id, partition_indexes=[partition])
            ],
        )
        response = self.shard.offsets.fetch(request, require_stable=require_stable)
        if response.error_code:
            return ErrorCode(response.error_code)
        return response.topics[0].partitions[0]


def subscription(
    *topics: str, owned: dict[str, set[int]] | None = None, generation: int = -1
) -> bytes:
    """The metadata that a classic consumer sends."""
    rows = [
        TopicPartitions(topic=name, partitions=sorted(indexes))
        for name, indexes in (owned or {}).items()
    ]
    return encode_subscription(
        ConsumerProtocolSubscription(
            topics=list(topics), owned_partitions=rows, generation_id=generation
        ),
        3,
    )
