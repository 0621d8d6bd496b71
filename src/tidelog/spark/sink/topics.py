"""The topics that a writer writes to: how many partitions they have, and who leads them now."""

import time
from collections.abc import Iterable

from tidelog.client.cluster import ClusterClient, Retries, Stale, is_retriable, retrying
from tidelog.client.errors import RetriableError
from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.errors import SparkError

# New partitions of a topic are used after this long.
_TOPIC_AGE_S_MAX = 60.0
_CREATE_TIMEOUT_MS = 10_000


def partition_count(client: ClusterClient, topic: str, timeout_s: float) -> int:
    """The number of a topic's partitions. The broker may make the topic for being asked."""
    known = client.cluster.view.topics.get(topic)
    if known is not None and time.monotonic() - known.read_s <= _TOPIC_AGE_S_MAX:
        return known.partition_count
    return refresh_topics(client, [topic], timeout_s)[topic]


def refresh_topics(
    client: ClusterClient, topics: Iterable[str], timeout_s: float
) -> dict[str, int]:
    """Ask where the partitions of these topics are now, and how many."""
    names = sorted(topics)
    return retrying(
        lambda: _ask_topics(client, names),
        f"no partitions of {', '.join(names)}",
        Retries(timeout_s),
    )


def _ask_topics(client: ClusterClient, names: list[str]) -> dict[str, int]:
    response = client.cluster.metadata(names, allow_auto_topic_creation=True)
    for topic in response.topics:
        code = ErrorCode(topic.error_code)
        if not code and not topic.partitions:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        if is_retriable(code, Stale.METADATA):
            raise RetriableError(code, topic.name or "")
        if code:
            raise SparkError(f"the topic {topic.name!r} cannot be written to: {code.name}")
    return {topic.name or "": len(topic.partitions) for topic in response.topics}


def create_compacted_topic(client: ClusterClient, name: str) -> None:
    """Make a topic of one partition if it is not there."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=-1,
                configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
            )
        ],
        timeout_ms=_CREATE_TIMEOUT_MS,
    )
    row = client.ask_any(
        request, CreateTopicsResponse, lambda response: response.topics[0].error_code
    ).topics[0]
    code = ErrorCode(row.error_code)
    if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise SparkError(
            f"the topic {name} cannot be made: {code.name} {row.error_message or ''}".rstrip()
        )
