"""Finding the partition that a request speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition
    from tidelog.server.node import Node


def hosted_partition(node: Node, topic: str, index: int) -> Partition:
    """The partition, if this node has a replica of it.

    UNKNOWN_TOPIC_OR_PARTITION where there is none, NOT_LEADER_OR_FOLLOWER where others have it,
    KAFKA_STORAGE_ERROR where this node should have it and its disk does not let it.
    """
    partition = node.partitions.get(topic, index)
    if partition is not None:
        return partition
    placed = node.image.partition(topic, index)
    if placed is not None and node.config.node_id in placed.replicas:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {topic}-{index} is offline")
    if placed is not None:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is not on this node")
    raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{index}")
