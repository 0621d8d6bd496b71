"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, and the expiry of offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tidelog.coordinator.groups.classic_group import ClassicGroup, ClassicState
from tidelog.coordinator.groups.classic_protocol import ClassicGroupProtocol
from tidelog.coordinator.groups.client_context import ClientContext
from tidelog.coordinator.groups.consumer_group import ConsumerGroup
from tidelog.coordinator.groups.group_config import GroupConfig
from tidelog.coordinator.groups.group_table import Group, GroupTable
from tidelog.coordinator.groups.topics import TopicsView
from tidelog.coordinator.offsets import CommittedOffset, Offsets
from tidelog.coordinator.shard import CoordinatorRecord, CoordinatorResult
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.protocol.apis.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tidelog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.uuids import ZERO_UUID

# From this version on OffsetCommit carries member epochs and says that a group does not exist.
_MEMBER_EPOCH_FROM = 9


class OffsetRequests:
    def __init__(
        self,
        config: GroupConfig,
        groups: GroupTable,
        offsets: Offsets,
        classic: ClassicGroupProtocol,
        topic_id: Callable[[str], bytes],
    ) -> None:
        """`topic_id` gives the id of a topic by its name, zero where there is none."""
        self._config = config
        self._groups = groups
        self._offsets = offsets
        self._classic = classic
        self._topic_id = topic_id

    def commit(
        self, client: ClientContext, request: OffsetCommitRequest, now_ms: int
    ) -> CoordinatorResult[OffsetCommitResponse]:
        """The topics are named; the caller has turned ids into names and left out what it refused.
        Cost: about 4 µs a partition."""
        group = self._committing_group(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            version=client.api_version,
        )
        if isinstance(group, ClassicGroup):
            self._keep_session(group, request.member_id, now_ms)
        retention_ms = request.retention_time_ms
        expire_ms = -1 if retention_ms < 0 else now_ms + retention_ms
        records = []
        topics = []
        for topic in request.topics:
            rows = []
            topic_id = self._topic_id(topic.name)
            for row in topic.partitions:
                error, record = self._commit_one(
                    request.group_id,
                    topic.name,
                    topic_id,
                    row.partition_index,
                    row.committed_offset,
                    row.committed_leader_epoch,
                    row.committed_metadata,
                    row.commit_timestamp if row.commit_timestamp >= 0 else now_ms,
                    expire_ms,
                )
                if record is not None:
                    records.append(record)
                rows.append(
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=error
                    )
                )
            topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)
            )
        return CoordinatorResult(records, OffsetCommitResponse(topics=topics))

    def commit_in_transaction(
        self, client: ClientContext, request: TxnOffsetCommitRequest, now_ms: int
    ) -> CoordinatorResult[TxnOffsetCommitResponse]:
        """The producer's right to write to this partition has been checked."""
        self._committing_group(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            version=client.api_version,
            in_transaction=True,
        )
        records = []
        topics = []
        for topic in request.topics:
            rows = []
            topic_id = self._topic_id(topic.name)
            for row in topic.partitions:
                error, record = self._commit_one(
                    request.group_id,
                    topic.name,
                    topic_id,
                    row.partition_index,
                    row.committed_offset,
                    row.committed_leader_epoch,
                    row.committed_metadata,
                    now_ms,
                    -1,
                )
                if record is not None:
                    records.append(record)
                rows.append(
                    TxnOffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=error
                    )
                )
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
        return CoordinatorResult(
            records,
            TxnOffsetCommitResponse(topics=topics),
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        )

    def _commit_one(
        self,
        group: str,
        topic: str,
        topic_id: bytes,
        partition: int,
        offset: int,
        leader_epoch: int,
        metadata: str | None,
        commit_ms: int,
        expire_ms: int,
    ) -> tuple[ErrorCode, CoordinatorRecord | None]:
        if metadata is not None and len(metadata) > self._config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE, None
        committed = CommittedOffset(
            offset, leader_epoch, metadata or "", commit_ms, expire_ms, -1, topic_id
        )
        record = self._offsets.commit_record(group, topic, partition, committed)
        return ErrorCode.NONE, record

    def _committing_group(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        *,
        version: int,
        in_transaction: bool = False,
    ) -> Group | None:
        """The group that the commit is for, once it may commit; None: a consumer outside of group
        management commits the first offset of a group that does not exist yet."""
        group = self._groups.get(group_id)
        if group is None:
            if epoch < 0:
                return None
            if version >= _MEMBER_EPOCH_FROM and not in_transaction:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        if isinstance(group, ConsumerGroup):
            _check_consumer_commit(group, member_id, epoch, version, in_transaction)
        else:
            _check_classic_commit(group, member_id, instance_id, epoch, in_transaction)
        return group

    def _keep_session(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        # A commit shows that the member is alive, as a heartbeat does.
        if group.state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
            member = group.members.get(member_id)
            if member is not None:
                self._classic.extend_session(group, member, now_ms)

    # OffsetFetch

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """A null list of topics asks for everything committed."""
        group_id = request.group_id
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            try:
                _check_fetch(group, request)
            except ApiError as refused:
                return OffsetFetchResponseGroup(group_id=group_id, error_code=refused.code)
        topics = []
        if request.topics is None:
            for name, partitions in self._offsets.of_group(group_id).items():
                rows = [self._fetch_one(group_id, name, p, require_stable) for p in partitions]
                topics.append(OffsetFetchResponseTopics(name=name, partitions=rows))
        else:
            for topic in request.topics:
                rows = [
                    self._fetch_one(group_id, topic.name, partition, require_stable, topic.topic_id)
                    for partition in topic.partition_indexes
                ]
                topics.append(
                    OffsetFetchResponseTopics(
                        name=topic.name, topic_id=topic.topic_id, partitions=rows
                    )
                )
        return OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    def _fetch_one(
        self,
        group_id: str,
        topic: str,
        partition: int,
        require_stable: bool,
        topic_id: bytes = ZERO_UUID,
    ) -> OffsetFetchResponsePartitions:
        if require_stable and self._offsets.is_pending(group_id, topic, partition):
            return OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=-1,
                metadata="",
                error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
            )
        committed = self._offsets.get(group_id, topic, partition)
        if committed is None or _is_of_another_topic(committed, topic_id):
            return OffsetFetchResponsePartitions(
                partition_index=partition, committed_offset=-1, metadata=""
            )
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )

    # OffsetDelete and deletion

    def delete(self, request: OffsetDeleteRequest) -> CoordinatorResult[OffsetDeleteResponse]:
        group = self._groups.get(request.group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        if (
            isinstance(group, ClassicGroup)
            and not group.is_empty
            and not group.uses_consumer_protocol
        ):
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        subscribed = _subscribed_topics(group)
        records = []
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                index = row.partition_index
                error = ErrorCode.NONE
                if subscribed is None or topic.name in subscribed:
                    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif self._has_offset(request.group_id, topic.name, index):
                    records.append(self._offsets.tombstone(request.group_id, topic.name, index))
                rows.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
        return CoordinatorResult(records, OffsetDeleteResponse(topics=topics))

    def _has_offset(self, group: str, topic: str, partition: int) -> bool:
        return self._offsets.get(group, topic, partition) is not None or self._offsets.is_pending(
            group, topic, partition
        )

    def group_tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """Every offset of a group, those of open transactions too."""
        gone = {
            (topic, partition)
            for topic, partitions in self._offsets.of_group(group_id).items()
            for partition in partitions
        }
        gone.update(self._offsets.pending_of_group(group_id))
        return [self._offsets.tombstone(group_id, *each) for each in sorted(gone)]

    def topic_tombstones(self, names: Collection[str]) -> list[CoordinatorRecord]:
        """The offsets that any group has in these topics."""
        records = []
        for group in self._groups:
            of_group = self._offsets.of_group(group.group_id)
            pending = self._offsets.pending_of_group(group.group_id)
            for name in names:
                gone = set(of_group.get(name, ()))
                gone.update(partition for topic, partition in pending if topic == name)
                records += [
                    self._offsets.tombstone(group.group_id, name, partition)
                    for partition in sorted(gone)
                ]
        return records

    def orphan_tombstones(self, topics: TopicsView) -> list[CoordinatorRecord]:
        """The offsets of topics that are not there any more, or have another id by now."""
        by_name = topics.topics_by_name
        named: set[str] = set()
        records = []
        for group in self._groups:
            named.update(name for name, _ in self._offsets.pending_of_group(group.group_id))
            for name, partitions in self._offsets.of_group(group.group_id).items():
                named.add(name)
                if name in by_name:
                    records += [
                        self._offsets.tombstone(group.group_id, name, partition)
                        for partition, committed in sorted(partitions.items())
                        if committed.topic_id not in (ZERO_UUID, by_name[name].topic_id)
                    ]
        return records + self.topic_tombstones(sorted(named - by_name.keys()))

    # Expiry

    def expired(self, group: Group, now_ms: int) -> tuple[list[CoordinatorRecord], bool]:
        """The tombstones of what is past its retention, and whether nothing is left then."""
        group_id = group.group_id
        topics = self._offsets.of_group(group_id)
        subscribed = _subscribed_topics(group)
        records = []
        left = self._offsets.has_pending(group_id)
        for topic, partitions in topics.items():
            in_use = subscribed is None or topic in subscribed
            for partition, committed in partitions.items():
                if (
                    in_use
                    or self._offsets.is_pending(group_id, topic, partition)
                    or not self._is_expired(group, committed, now_ms)
                ):
                    left = True
                else:
                    records.append(self._offsets.tombstone(group_id, topic, partition))
        return records, not left

    def _is_expired(self, group: Group, committed: CommittedOffset, now_ms: int) -> bool:
        if committed.expire_ms >= 0:
            return now_ms >= committed.expire_ms
        since_ms = committed.commit_ms
        if isinstance(group, ClassicGroup) and group.is_empty and group.protocol_type is not None:
            # The members of a group that emptied late may come back late.
            since_ms = max(since_ms, group.state_since_ms)
        return now_ms - since_ms >= self._config.offsets_retention_ms


def _is_of_another_topic(committed: CommittedOffset, topic_id: bytes) -> bool:
    """Whether an offset was committed in a topic that had the name before this one."""
    return (
        topic_id != ZERO_UUID and committed.topic_id != ZERO_UUID and committed.topic_id != topic_id
    )


def _subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics whose offsets are in use; None means that all of them may be."""
    if isinstance(group, ConsumerGroup):
        return group.subscribed_topics()
    if group.is_empty:
        return frozenset()
    if group.state is not ClassicState.STABLE:
        return None
    return group.subscribed_topics()


def _check_classic_commit(
    group: ClassicGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    in_transaction: bool,
) -> None:
    if group.state is ClassicState.DEAD:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if generation < 0 and group.is_empty:
        return
    if generation >= 0 or member_id or instance_id is not None:
        group.check_member(member_id, instance_id)
        if generation != group.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    elif not in_transaction:
        # While a group has members, only they commit. Old transactional producers do not say who
        # they are.
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not in_transaction and group.state is ClassicState.COMPLETING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)


def _check_consumer_commit(
    group: ConsumerGroup, member_id: str, epoch: int, version: int, in_transaction: bool
) -> None:
    if epoch < 0 and (group.is_empty or (in_transaction and not member_id)):
        return
    member = group.find_member(member_id)
    if member.uses_classic_protocol:
        if epoch != member.member_epoch:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return
    if version < _MEMBER_EPOCH_FROM and not in_transaction:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"OffsetCommit version {_MEMBER_EPOCH_FROM} or above must be used by members using the"
            " consumer group protocol",
        )
    if epoch != member.member_epoch:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION if in_transaction else ErrorCode.STALE_MEMBER_EPOCH,
            f"{member_id} is at epoch {member.member_epoch}, not {epoch}",
        )


def _check_fetch(group: ConsumerGroup, request: OffsetFetchRequestGroup) -> None:
    if request.member_id is None and request.member_epoch < 0:
        return
    member = group.find_member(request.member_id or "")
    if request.member_epoch != member.member_epoch:
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH)
