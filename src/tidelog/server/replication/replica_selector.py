"""Which replica a consumer reads from (KIP-392): one in its own rack, where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import MetadataImage
    from tidelog.cluster.replication.partition import Partition

RACK_AWARE_NAMES = (
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "RackAwareReplicaSelector",
)
LEADER_NAMES = ("org.apache.kafka.common.replica.LeaderSelector", "LeaderSelector")


class RackAwareReplicaSelector:
    """The leader's choice for consumers that name their rack."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    def select(self, rack: str, partition: Partition, fetch_offset: int) -> int | None:
        """A follower in the consumer's rack that is in sync and has the offset, the one that is
        furthest; None when the consumer is best served by the leader."""
        brokers = self._image().brokers
        leader = brokers.get(partition.node_id)
        if leader is not None and leader.rack == rack:
            return None
        isr = partition.state.isr
        best: tuple[int, int, int] | None = None
        for broker_id, follower in partition.state.followers.items():
            broker = brokers.get(broker_id)
            if (
                broker is not None
                and broker.rack == rack
                and not broker.fenced
                and broker_id in isr
                and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            ):
                found = (follower.log_end_offset, follower.last_caught_up_ms, broker_id)
                best = found if best is None else max(best, found)
        return None if best is None else best[2]


def replica_selector(
    name: str | None, image: Callable[[], MetadataImage]
) -> RackAwareReplicaSelector | None:
    """What `replica.selector.class` names; None when consumers read from leaders."""
    return RackAwareReplicaSelector(image) if name in RACK_AWARE_NAMES else None
