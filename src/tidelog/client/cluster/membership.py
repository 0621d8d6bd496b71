"""Membership in a classic consumer group, with the eager protocol.

A member joins, gets its partitions with the generation that begins, and keeps itself alive by
heartbeats. When the group rebalances it gives up all its partitions and joins again. One member is
the leader: it divides the partitions among all (`assignors`).
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tidelog.client.cluster.assignors import ASSIGNORS
from tidelog.client.cluster.client import ClusterClient
from tidelog.client.cluster.cluster import COORDINATOR_GROUP
from tidelog.client.cluster.groups import Groups
from tidelog.client.cluster.heartbeats import Heartbeats
from tidelog.client.cluster.retrying import Retries, Stale, is_retriable
from tidelog.client.cluster.view import Coordinated
from tidelog.client.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    ConsumeError,
    RetriableError,
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
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.protocol.errors import ErrorCode, ProtocolError
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition

R = TypeVar("R", bound=JoinGroupResponse | SyncGroupResponse)

# The answer of a coordinator that waited for all members comes a little after their time is up.
_ANSWER_MARGIN_S = 5.0
_LEAVE_TIMEOUT_S = 5.0
# How often the leader looks whether topics have got more partitions.
_TOPICS_AGE_S_MAX = 300.0
_REJOIN_PAUSE_S = 0.01
_SUBSCRIPTION_VERSION = 1
_ASSIGNMENT_VERSION = 0

# The generation is over for this member: it joins the next one.
_REJOINS = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """How a member keeps its place.

    Without heartbeats for `session_timeout_s` the coordinator removes it, and so it does when the
    member takes longer than `poll_interval_max_s` to join again. `timeout_s` is how long the
    coordinator may be away.
    """

    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    poll_interval_max_s: float = 300.0
    timeout_s: float = 60.0


class _Rejoin(Exception):
    """The coordinator has begun a new generation."""


class Membership:
    """A member of a group that reads some topics. Not safe to share between threads."""

    def __init__(
        self,
        client: ClusterClient,
        group_id: str,
        topics: Iterable[str],
        settings: MembershipSettings,
    ) -> None:
        self._client = client
        self._cluster = client.cluster
        self._groups = Groups(client)
        self.group_id = group_id
        self._topics = sorted(topics)
        self._settings = settings
        self._member_id = ""
        self._generation_id = -1
        self._heartbeats: Heartbeats | None = None
        # What the leader divided, to see when there is more; empty for other members.
        self._partition_counts: dict[str, int] = {}
        self._topics_read_s = 0.0

    def poll(self) -> bool:
        """Whether the generation goes on, so that the partitions of the last `join` may be read."""
        heartbeats = self._heartbeats
        if heartbeats is None:
            return False
        heartbeats.touch()
        if heartbeats.refusal is not None:
            self._end_generation(heartbeats.refusal)
            return False
        if self._has_new_partitions():
            self._end_generation(ErrorCode.REBALANCE_IN_PROGRESS)
            return False
        return True

    def join(self) -> list[TopicPartition]:
        """Take part in the next generation; the partitions that are this member's in it."""
        retries = Retries(self._settings.timeout_s)
        while True:
            try:
                partitions = self._join_once()
            except _Rejoin:
                retries.restart()
                time.sleep(_REJOIN_PAUSE_S)
            except (ConnectError, RetriableError) as error:
                retries.wait(f"joining the group {self.group_id}", error)
            else:
                self._start_heartbeats()
                return partitions

    def committed(self) -> dict[TopicPartition, int]:
        """The offsets that the group has committed."""
        return self._groups.committed(self.group_id, require_stable=True)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit offsets of this member's partitions; False if they are not its own any more."""
        try:
            self._groups.commit(
                self.group_id,
                offsets,
                member_id=self._member_id,
                generation_id=self._generation_id,
            )
        except BrokerError as error:
            if error.code not in _REJOINS:
                raise
            self._end_generation(error.code)
            return False
        return True

    def close(self) -> None:
        """Leave the group; if the coordinator cannot be told, the session ends by itself."""
        if self._heartbeats is not None:
            self._heartbeats.stop()
            self._heartbeats = None
        if not self._member_id:
            return
        request = LeaveGroupRequest(
            group_id=self.group_id,
            member_id=self._member_id,
            members=[MemberIdentity(member_id=self._member_id)],
        )
        self._member_id = ""
        try:
            ClusterClient(self._cluster, _LEAVE_TIMEOUT_S).ask_coordinator(
                COORDINATOR_GROUP,
                self.group_id,
                request,
                LeaveGroupResponse,
                lambda response: response.error_code,
            )
        except ClientError:
            pass

    # Joining

    def _join_once(self) -> list[TopicPartition]:
        settings = self._settings
        subscription = encode_subscription(
            ConsumerProtocolSubscription(topics=self._topics), _SUBSCRIPTION_VERSION
        )
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=int(settings.session_timeout_s * 1000),
            rebalance_timeout_ms=int(settings.poll_interval_max_s * 1000),
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=subscription) for name in ASSIGNORS
            ],
        )
        joined = self._ask(request, JoinGroupResponse)
        self._member_id = joined.member_id
        self._generation_id = joined.generation_id
        self._partition_counts = {}
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == self._member_id and not joined.skip_assignment:
            assignments = self._assign(joined)
        sync = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        answer = self._ask(sync, SyncGroupResponse)
        return [
            TopicPartition(each.topic, number)
            for each in decode_assignment(bytes(answer.assignment)).assigned_partitions
            for number in each.partitions
        ]

    def _ask(self, request: Message, answer: type[R]) -> R:
        """The answer to a join or a sync, which waits for the other members."""
        address = self._cluster.coordinators(COORDINATOR_GROUP, [self.group_id])[self.group_id]
        connection = None
        try:
            connection = self._cluster.connect(address)
            connection.send(request)
            connection.wait(self._settings.poll_interval_max_s + _ANSWER_MARGIN_S)
            response = connection.receive(answer)
        except ConnectError:
            self._cluster.view.invalidate_broker(address)
            raise
        finally:
            # Whatever ended the wait, its answer is not to be taken for that of the next request.
            if connection is not None and connection.in_flight:
                self._cluster.drop(connection)
        self._check(ErrorCode(response.error_code), response)
        return response

    def _check(self, code: ErrorCode, response: JoinGroupResponse | SyncGroupResponse) -> None:
        if code is ErrorCode.MEMBER_ID_REQUIRED and isinstance(response, JoinGroupResponse):
            self._member_id = response.member_id
        if code in _REJOINS:
            self._end_generation(code)
            raise _Rejoin
        if is_retriable(code, Stale.COORDINATOR):
            coordinated = Coordinated(COORDINATOR_GROUP, self.group_id)
            self._cluster.view.invalidate_coordinator(coordinated, code)
            raise RetriableError(code, f"the coordinator of {self.group_id}")
        if code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise ConsumeError(
                f"cannot join the group {self.group_id}: its members use none of the assignors"
                f" {', '.join(ASSIGNORS)}"
            )
        if code:
            raise BrokerError(code, f"cannot join the group {self.group_id}")

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        # Static members come first, by the name that survives their restart.
        members = sorted(
            joined.members,
            key=lambda each: (
                each.group_instance_id is None,
                each.group_instance_id or each.member_id,
            ),
        )
        try:
            subscriptions = {
                each.member_id: frozenset(decode_subscription(bytes(each.metadata)).topics)
                for each in members
            }
        except ProtocolError as error:
            raise ConsumeError(
                f"cannot lead the group {self.group_id}: a member's subscription is malformed:"
                f" {error}"
            ) from error
        assignor = ASSIGNORS[joined.protocol_name or ""]
        self._partition_counts = self._count_partitions(frozenset().union(*subscriptions.values()))
        return [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=_encode_partitions(partitions)
            )
            for member_id, partitions in assignor(subscriptions, self._partition_counts).items()
        ]

    def _count_partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Of the topics that exist."""
        self._topics_read_s = time.monotonic()
        rows = self._client.metadata(sorted(topics)).topics
        return {row.name or "": len(row.partitions) for row in rows if not row.error_code}

    # The generation

    def _start_heartbeats(self) -> None:
        self._heartbeats = Heartbeats(
            self._cluster.sibling(),
            HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self._generation_id,
                member_id=self._member_id,
            ),
            interval_s=self._settings.heartbeat_interval_s,
            poll_interval_max_s=self._settings.poll_interval_max_s,
        )

    def _end_generation(self, code: ErrorCode) -> None:
        if self._heartbeats is not None:
            self._heartbeats.stop()
            self._heartbeats = None
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    def _has_new_partitions(self) -> bool:
        counts = self._partition_counts
        if not counts or time.monotonic() - self._topics_read_s < _TOPICS_AGE_S_MAX:
            return False
        return self._count_partitions(counts) != counts


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    rows = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    return encode_assignment(
        ConsumerProtocolAssignment(assigned_partitions=rows), _ASSIGNMENT_VERSION
    )
