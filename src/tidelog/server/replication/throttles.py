"""The throttles of a node: what it replicates to others and from them (KIP-73), and what it moves
between its log directories.

The limits are settings of brokers, and the replicas that are throttled are settings of topics. Both
hold as soon as the metadata has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.byte_throttle import ByteThrottle
from tidelog.cluster.metadata.image import ConfigResourceType
from tidelog.cluster.replication.replication_throttle import ReplicationThrottle
from tidelog.cluster.settings.topic_config import throttled_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.cluster.metadata.image import MetadataDelta, MetadataImage
    from tidelog.server.configuration.node_config import NodeConfig
    from tidelog.server.network.reactor import Reactor
    from tidelog.world import World

_LEADERS = "leader.replication.throttled.replicas"
_FOLLOWERS = "follower.replication.throttled.replicas"


class Throttles:
    """`node.throttles`. All of it belongs to the loop thread."""

    def __init__(self, config: NodeConfig, world: World, reactor: Reactor) -> None:
        def throttle(window_count: int, window_seconds: int) -> ByteThrottle:
            return ByteThrottle(
                window_count,
                window_seconds * 1000,
                lambda: int(world.monotonic() * 1000),
                reactor.call_later,
            )

        windows = config.replication_quota_window_num, config.replication_quota_window_size_seconds
        self._node_id = config.node_id
        self.leader = ReplicationThrottle(throttle(*windows))
        self.follower = ReplicationThrottle(throttle(*windows))
        self.moves = throttle(
            config.alter_log_dirs_replication_quota_window_num,
            config.alter_log_dirs_replication_quota_window_size_seconds,
        )

    def take_over_limits(self, config: NodeConfig) -> None:
        """The limits of the node's settings as they are now."""
        self.leader.bytes.set_limit(config.leader_replication_throttled_rate)
        self.follower.bytes.set_limit(config.follower_replication_throttled_rate)
        self.moves.set_limit(config.replica_alter_log_dirs_io_max_bytes_per_second)

    def load(self, image: MetadataImage) -> None:
        """At start: the replicas that the topics' settings name."""
        self._choose(
            image,
            (each.name for each in image.configs if each.type == ConfigResourceType.TOPIC),
        )

    def on_metadata(
        self, before: MetadataImage, after: MetadataImage, delta: MetadataDelta
    ) -> None:
        """Settings of topics may have changed, or gone with their topics."""
        if delta.configs:
            self._choose(
                after,
                (each.name for each in delta.configs if each.type == ConfigResourceType.TOPIC),
            )
        if delta.deleted_topics:
            self._choose(after, (topic.name for topic in delta.deleted_topics))

    def _choose(self, image: MetadataImage, topics: Iterable[str]) -> None:
        for topic in topics:
            configs = image.topic_configs(topic)
            for throttle, name in ((self.leader, _LEADERS), (self.follower, _FOLLOWERS)):
                throttle.choose(topic, throttled_partitions(configs.get(name), self._node_id))
