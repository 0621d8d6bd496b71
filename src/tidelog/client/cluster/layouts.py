"""The partitions of topics that are to be written to."""

import time
from dataclasses import replace

from tidelog.client.cluster.cluster import Cluster
from tidelog.client.cluster.retrying import Retries, Stale, is_retriable
from tidelog.client.errors import (
    BrokerError,
    ConnectError,
    PublishError,
    RetriableError,
    RetriesExhausted,
)
from tidelog.client.topic_layout import TopicLayout
from tidelog.protocol.apis.metadata import MetadataResponseTopic
from tidelog.protocol.errors import ErrorCode

# New partitions of a topic are used after this long.
_LAYOUT_AGE_S_MAX = 60.0


def find_layout(cluster: Cluster, topic: str, timeout_s: float) -> TopicLayout:
    """The partitions of a topic, which the broker may make for being asked.

    `timeout_s` is how long it may take the topic to show up.
    """
    view = cluster.view
    known = view.topics.get(topic)
    if known is not None and time.monotonic() - known.read_s <= _LAYOUT_AGE_S_MAX:
        return known.layout
    try:
        return _ask_until(cluster, topic, Retries(timeout_s))
    except RetriesExhausted:
        # Brokers that are away now are waited for when the records are sent.
        if known is None:
            raise
        view.topics[topic] = replace(known, read_s=time.monotonic())
        return known.layout


def check_writable(topic: MetadataResponseTopic) -> ErrorCode:
    """The error of a topic if it is retriable, or NONE; PublishError for any other."""
    code = ErrorCode(topic.error_code)
    if not code and not topic.partitions:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if code and not is_retriable(code, Stale.METADATA):
        raise PublishError(f"cannot write to the topic {topic.name}: {code.name}")
    return code


def _ask_until(cluster: Cluster, topic: str, retries: Retries) -> TopicLayout:
    while True:
        try:
            return _ask(cluster, topic)
        except (ConnectError, RetriableError) as error:
            if isinstance(error, RetriableError) and retries.is_over:
                raise BrokerError(error.code, f"cannot write to the topic {topic}") from error
            retries.wait(f"the partitions of {topic}", error)


def _ask(cluster: Cluster, topic: str) -> TopicLayout:
    (row,) = cluster.metadata([topic], allow_auto_topic_creation=True).topics
    if code := check_writable(row):
        raise RetriableError(code, topic)
    return cluster.view.topics[topic].layout
