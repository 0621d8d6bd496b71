"""Topics that come into being because somebody asked for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidelog.cluster.controller.topic_changes import DEFAULT
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.promise import Promise
from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.configuration.node_config import SETTINGS
from tidelog.server.controller.request_context import RequestContext

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

# Of CreateTopics: as a client that knows all errors.
_VERSION = 7


def new_topic(node: Node, name: str) -> CreatableTopic:
    """A topic as the node makes it unasked: with its defaults, internal ones as they must be.

    Where nothing else is set, internal topics have no more replicas than there are brokers now, so
    that one node works unset. What is set is what they get, or they are not made.
    """
    config = node.config
    if name == CONSUMER_OFFSETS_TOPIC:
        return _topic(
            name,
            config.offsets_topic_num_partitions,
            _replicas(node, "offsets.topic.replication.factor"),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        replicas = _replicas(node, "transaction.state.log.replication.factor")
        min_isr = config.transaction_state_log_min_isr
        if "transaction.state.log.min.isr" not in config.explicit:
            min_isr = min(min_isr, replicas)
        return _topic(
            name,
            config.transaction_state_log_num_partitions,
            replicas,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    return _topic(
        name, _if_set(node, "num.partitions"), _if_set(node, "default.replication.factor"), {}
    )


def _if_set(node: Node, setting: str) -> int:
    """What this node's own configuration says; where it says nothing the controller decides."""
    said = node.config.explicit.get(setting)
    return DEFAULT if said is None else int(said)


def _replicas(node: Node, setting: str) -> int:
    config = node.config
    said = config.explicit.get(setting)
    if said is not None:
        return int(said)
    broker_count = sum(broker.is_active for broker in node.image.brokers.values())
    return max(1, min(int(SETTINGS[setting].default or 1), broker_count))


def _topic(
    name: str, partition_count: int, replication_factor: int, configs: Mapping[str, str]
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


def create_missing_topics(
    node: Node, request: Request, names: Iterable[str]
) -> Promise[dict[str, ErrorCode]]:
    """Creates topics for a client, on its quota; gives the errors of those that could not be
    created."""
    topics = [new_topic(node, name) for name in dict.fromkeys(names)]
    context = RequestContext.of(request)._replace(version=_VERSION)

    def errors_of(response: CreateTopicsResponse) -> dict[str, ErrorCode]:
        by_name = node.image.topics_by_name
        return {
            row.name: _for_metadata(row.error_code)
            for row in response.topics
            if row.error_code and row.name not in by_name  # whoever made it
        }

    answer: Promise[CreateTopicsResponse] = node.controller.ask(
        CreateTopicsRequest(topics=topics), context
    )
    return answer.then(errors_of).recover(
        ApiError, lambda error: {topic.name: error.code for topic in topics}
    )


def _for_metadata(error_code: int) -> ErrorCode:
    """Clients that ask for metadata ask again for what is unknown: they do not know the quota, nor
    that somebody else has made the topic and this node has not heard of it yet."""
    if error_code in (ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.TOPIC_ALREADY_EXISTS):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode(error_code)
