"""Topics of a cluster: create, describe, alter and delete them."""

from collections.abc import Iterable, Mapping, Sequence

from tidelog.client.cluster.client import ClusterClient
from tidelog.client.cluster.retrying import ANY_BROKER, worst_code
from tidelog.client.errors import BrokerError
from tidelog.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.apis.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from tidelog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.apis.metadata import MetadataResponseTopic
from tidelog.protocol.errors import ErrorCode

_TOPIC_RESOURCE = 2
_SET = 0
_DELETE = 1
# How long brokers may take over a change before they answer that it goes on.
_CHANGE_TIMEOUT_MS = 8_000


class Topics:
    """The topics of a cluster. Each call raises BrokerError with what the broker says."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def all(self) -> dict[str, MetadataResponseTopic]:
        """All topics by their names, also internal ones."""
        return {topic.name or "": topic for topic in self._client.metadata().topics}

    def describe(self, name: str) -> MetadataResponseTopic:
        """One topic with its partitions."""
        (topic,) = self._client.metadata([name]).topics
        _check(topic.error_code, f"cannot describe {name}")
        return topic

    def create(
        self,
        names: Sequence[str],
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create topics that are alike; -1 takes the broker's default."""
        configs = [
            CreatableTopicConfig(name=name, value=value) for name, value in (settings or {}).items()
        ]
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    configs=configs,
                )
                for name in names
            ],
            timeout_ms=_CHANGE_TIMEOUT_MS,
        )
        answer = self._client.change(
            request,
            CreateTopicsResponse,
            lambda response: _worst(row.error_code for row in response.topics),
        )
        for row in answer.topics:
            _check(row.error_code, f"cannot create {row.name}", row.error_message)

    def add_partitions(self, name: str, count: int) -> None:
        """Give a topic more partitions, `count` in all."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=_CHANGE_TIMEOUT_MS,
        )
        answer = self._client.change(
            request, CreatePartitionsResponse, lambda response: response.results[0].error_code
        )
        row = answer.results[0]
        _check(row.error_code, f"cannot add partitions to {name}", row.error_message)

    def settings(self, name: str) -> list[DescribeConfigsResourceResult]:
        """The settings of a topic, also those that have their default."""
        resource = DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None
        )
        answer = self._client.ask_any(
            DescribeConfigsRequest(resources=[resource]),
            DescribeConfigsResponse,
            lambda response: response.results[0].error_code,
        )
        result = answer.results[0]
        _check(result.error_code, f"cannot read the settings of {name}", result.error_message)
        return result.configs

    def alter_settings(
        self, name: str, changes: Mapping[str, str], unset: Iterable[str] = ()
    ) -> None:
        """Change settings of a topic, and put others back to their defaults."""
        configs = [
            AlterableConfig(name=key, config_operation=_SET, value=value)
            for key, value in changes.items()
        ] + [AlterableConfig(name=key, config_operation=_DELETE) for key in unset]
        resource = AlterConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=name, configs=configs
        )
        answer = self._client.ask_any(
            IncrementalAlterConfigsRequest(resources=[resource]),
            IncrementalAlterConfigsResponse,
            lambda response: response.responses[0].error_code,
        )
        row = answer.responses[0]
        _check(row.error_code, f"cannot change {name}", row.error_message)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics with all their records."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names],
            topic_names=list(names),
            timeout_ms=_CHANGE_TIMEOUT_MS,
        )
        answer = self._client.change(
            request,
            DeleteTopicsResponse,
            lambda response: _worst(row.error_code for row in response.responses),
        )
        for row in answer.responses:
            _check(row.error_code, f"cannot delete {row.name}", row.error_message)


def _worst(codes: Iterable[int]) -> int:
    return worst_code(codes, ANY_BROKER)


def _check(error_code: int, doing: str, message: str | None = None) -> None:
    if error_code:
        raise BrokerError(ErrorCode(error_code), doing, message)
