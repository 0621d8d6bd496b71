"""Topics that come into being because somebody asked for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from tidelog.cluster.controller.topic_changes import NewTopic
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import Message
from tidelog.server.decisions import answer_when_committed

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

Response = TypeVar("Response", bound=Message)


def new_topic(node: Node, name: str) -> NewTopic:
    """A topic as the node makes it unasked: with its defaults, internal ones as they must be.

    Internal topics have no more replicas than there are brokers, so that one node works unset.
    """
    config = node.config
    broker_count = max(1, sum(broker.is_active for broker in node.image.brokers.values()))
    if name == CONSUMER_OFFSETS_TOPIC:
        return NewTopic(
            name,
            config.offsets_topic_num_partitions,
            min(config.offsets_topic_replication_factor, broker_count),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        replicas = min(config.transaction_state_log_replication_factor, broker_count)
        return NewTopic(
            name,
            config.transaction_state_log_num_partitions,
            replicas,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(config.transaction_state_log_min_isr, replicas)),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    return NewTopic(name)


def create_missing_topics(
    node: Node,
    request: Request,
    names: Iterable[str],
    respond: Callable[[dict[str, ErrorCode]], Response],
) -> Response | Deferred:
    """Create topics; `respond` gets the errors of those that could not be created."""
    topics = [new_topic(node, name) for name in dict.fromkeys(names)]
    decision = node.controller.create_topics(topics, node.metadata.latest)
    errors = {row.name: row.error.code for row in decision.rows if row.error is not None}
    return answer_when_committed(node, request, decision.records, lambda: respond(errors))
