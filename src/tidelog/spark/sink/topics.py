"""The topic that the sink makes for itself."""

from tidelog.client.cluster import ClusterClient
from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.errors import SparkError

_CREATE_TIMEOUT_MS = 10_000


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
