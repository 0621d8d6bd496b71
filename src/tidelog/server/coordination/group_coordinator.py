"""The group coordinator of the node: the shards of `__consumer_offsets` and the way to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from tidelog.cluster.features import GROUP_VERSION
from tidelog.cluster.metadata.image import ConfigResource, ConfigResourceType
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.coordinator.groups.client_context import ClientContext
from tidelog.coordinator.groups.group_config import GroupConfig
from tidelog.coordinator.records.consumer_offsets import CONSUMER_OFFSETS
from tidelog.coordinator.shard import CoordinatorResult
from tidelog.promise import Promise
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.uuids import random_uuid
from tidelog.server.coordination.internal_topics import partition_for
from tidelog.server.coordination.shard_host import ShardHost

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import MetadataDelta, MetadataImage
    from tidelog.coordinator.group_shard import GroupShard
    from tidelog.server.configuration.node_config import NodeConfig
    from tidelog.server.node import Node
    from tidelog.server.request import Request

Result = TypeVar("Result")
Operation: TypeAlias = "Callable[[GroupShard, int], CoordinatorResult[Result]]"


class GroupCoordinator:
    """`node.groups`. Start it once the node's partitions are there; it then follows the
    metadata."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.config = group_config(node.config)
        self.host: ShardHost[GroupShard] = ShardHost(
            node,
            CONSUMER_OFFSETS_TOPIC,
            CONSUMER_OFFSETS,
            self._make_shard,
            load_pairs=lambda shard, *records: shard.replay_pairs(*records),
            on_loaded=self._loaded,
        )

    def start(self) -> None:
        self.host.start(self._node.image)
        self._node.metadata.listeners.append(self._metadata_changed)

    def close(self) -> None:
        self.host.close()

    def _make_shard(self, index: int) -> GroupShard:
        # What groups are made of is a third of a node's imports, and a new node has none.
        from tidelog.coordinator.group_shard import GroupShard

        shard = GroupShard(self.config, partial(new_member_id, self._node.world.random))
        shard.set_topics(self._node.image)
        shard.set_overrides(self._override)
        return shard

    def _loaded(self, index: int, shard: GroupShard) -> None:
        # Topics may have been deleted while nobody led the partition, or while it was loading.
        self.host.carry_out(index, shard.remove_offsets_of_deleted_topics())

    def _override(self, group_id: str, name: str) -> str | None:
        resource = ConfigResource(ConfigResourceType.GROUP, group_id)
        settings = self._node.image.configs.get(resource) or {}
        said = settings.get(name)
        if said is None and name == "consumer.assignment.interval.ms":
            # The one of these that can be changed while the broker runs.
            return str(self._node.config.group_consumer_assignment_interval_ms)
        return said

    def _metadata_changed(
        self, old: MetadataImage, new: MetadataImage, delta: MetadataDelta
    ) -> None:
        self.host.refresh(new)
        deleted = [topic.name for topic in delta.deleted_topics]
        for index, shard in self.host.shards():
            self.host.carry_out(index, shard.set_topics(new, deleted))

    # Requests

    def index_of(self, group_id: str) -> int:
        """The shard of a group; raises while there is none."""
        count = self.host.partition_count()
        if count == 0:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition_for(group_id, count)

    def submit(
        self,
        group_id: str,
        operation: Operation[Result],
        ticket: Promise[Result] | None = None,
    ) -> Promise[Result]:
        """Runs `operation` on the shard of a group; see `ShardHost.submit`."""
        try:
            index = self.index_of(group_id)
        except ApiError as error:
            return Promise.failed(error)
        return self.host.submit(index, operation, ticket)

    def transaction_ended(
        self,
        index: int,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        next_offset: int,
    ) -> None:
        """To be called right after a marker was appended to `__consumer_offsets-<index>`, whose
        next record gets `next_offset`."""
        self.host.end_marker_appended(index, producer_id, producer_epoch, committed, next_offset)


def new_member_id(random: Random) -> str:
    """A random id in the usual spelling; the module `uuid` costs 6 ms at start."""
    digits = random_uuid(random).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def check_group_id(group_id: str) -> None:
    """Only offsets can belong to the group without a name."""
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")


def check_consumer_protocol(node: Node) -> None:
    """An operator may switch the consumer protocol off, for a broker or for the cluster."""
    if node.image.features.get(GROUP_VERSION, 0) < 1:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "the consumer protocol needs the feature group.version at level 1",
        )
    if "consumer" not in node.config.group_coordinator_rebalance_protocols:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, "group.coordinator.rebalance.protocols lacks consumer"
        )


def client_context(request: Request) -> ClientContext:
    return ClientContext(
        request.client_id or "", f"/{request.connection.peer_host}", request.version
    )


def group_config(config: NodeConfig) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        group_consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        group_consumer_min_session_timeout_ms=config.group_consumer_min_session_timeout_ms,
        group_consumer_max_session_timeout_ms=config.group_consumer_max_session_timeout_ms,
        group_consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        group_consumer_min_heartbeat_interval_ms=config.group_consumer_min_heartbeat_interval_ms,
        group_consumer_max_heartbeat_interval_ms=config.group_consumer_max_heartbeat_interval_ms,
        group_consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        group_consumer_min_assignment_interval_ms=config.group_consumer_min_assignment_interval_ms,
        group_consumer_max_assignment_interval_ms=config.group_consumer_max_assignment_interval_ms,
        group_consumer_max_size=config.group_consumer_max_size,
        group_consumer_assignors=tuple(config.group_consumer_assignors),
        group_consumer_migration_policy=config.group_consumer_migration_policy,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_minutes=config.offsets_retention_minutes,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
    )
