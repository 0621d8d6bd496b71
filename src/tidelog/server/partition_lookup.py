"""Finding the partition that a request speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition
    from tidelog.server.node import Node


def hosted_partition(node: Node, topic: str, index: int) -> Partition:
    """The partition, if this node has a replica of it; else the error of `missing_partition`."""
    partition = node.partitions.get(topic, index)
    if partition is None:
        raise missing_partition(node, topic, index)
    return partition


def missing_partition(node: Node, topic: str | bytes, index: int) -> ApiError:
    """What to answer where this node has no such partition of a topic, which has a name or an id.

    UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID) where there is none or it is just being made,
    NOT_LEADER_OR_FOLLOWER where others have it, KAFKA_STORAGE_ERROR where this node should have it
    and its disk does not let it.
    """
    image = node.image
    if isinstance(topic, bytes):
        found = image.topics_by_id.get(topic)
        if found is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        name = found.name
    else:
        found = image.topics_by_name.get(topic)
        name = topic
    if found is not None and 0 <= index < len(found.partitions):
        if node.config.node_id not in found.partitions[index].replicas:
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index} is not on this node")
        if node.local_partitions.is_offline(found.topic_id, index):
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {name}-{index} is offline")
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{index}")
