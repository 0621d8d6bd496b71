"""The topics that coordinators keep their state in: made when they are first needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from tidelog.cluster.topic_changes import NewTopic
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node

# A coordinator writes what belongs together as one batch, and deleting a group with many offsets
# or storing a group with many members belongs together.
_BATCH_BYTES_MAX = 64 << 20


@lru_cache(maxsize=16_384)
def partition_for(key: str, partition_count: int) -> int:
    """Which partition coordinates a group or transactional id: Java's hash of the string."""
    units = key.encode("utf-16-be")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    if value >= 0x80000000:
        value = (0x100000000 - value) & 0x7FFFFFFF
    return value % partition_count


def ensure_internal_topic(node: Node, topic: str, done: Callable[[ApiError | None], None]) -> None:
    """Calls `done` once the topic is there and its coordinators can be asked, or with the reason
    why it could not be made."""
    if topic in node.image.topics_by_name:
        done(None)
        return
    latest = node.metadata.latest
    if topic in latest.topics_by_name:
        # It is being made; clients ask again.
        done(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    decision = node.controller.create_topics([_definition(node, topic)], latest)
    error = decision.rows[0].error
    if error is not None:
        node.log.error("internal_topic_not_created", topic=topic, error=error)
        done(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
        return
    node.metadata.submit(decision.records, lambda: done(None))


def _definition(node: Node, topic: str) -> NewTopic:
    config = node.config
    brokers = sum(1 for broker in node.image.brokers.values() if not broker.fenced)
    if topic == CONSUMER_OFFSETS_TOPIC:
        count = config.offsets_topic_num_partitions
        replicas = config.offsets_topic_replication_factor
        segment_bytes = config.offsets_topic_segment_bytes
    else:
        assert topic == TRANSACTION_STATE_TOPIC, topic
        count = config.transaction_state_log_num_partitions
        replicas = config.transaction_state_log_replication_factor
        segment_bytes = config.transaction_state_log_segment_bytes
    return NewTopic(
        topic,
        count,
        max(min(replicas, brokers), 1),
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(segment_bytes),
            "max.message.bytes": str(_BATCH_BYTES_MAX),
        },
    )
