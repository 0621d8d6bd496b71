"""What tools and frameworks ask of an administrator's API."""

import pytest

from tests.compatibility.conftest import MakeTopic
from tidelog.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.apis.describe_acls import DescribeAclsRequest
from tidelog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from tidelog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.testing.wire import WireClient

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def configs(wire: WireClient, kind: int, name: str) -> dict[str, object]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True
    )
    (result,) = wire.call(request, 4).results
    assert result.error_code == 0, result.error_message
    return {entry.name: entry for entry in result.configs}


def alter(wire: WireClient, topic: str, operation: int, value: str | None) -> int:
    change = AlterableConfig(name="cleanup.policy", config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[change])
    answer = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    code: int = answer.responses[0].error_code
    return code


def test_create_topics_takes_the_brokers_defaults(wire: WireClient) -> None:
    topic = CreatableTopic(name="with-broker-defaults", num_partitions=-1, replication_factor=-1)
    (row,) = wire.call(CreateTopicsRequest(topics=[topic]), 7).topics
    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 1, 1)


def test_create_partitions_echoes_its_topics(wire: WireClient, make_topic: MakeTopic) -> None:
    name = make_topic()
    topics = [
        CreatePartitionsTopic(name=name, count=3, assignments=None),
        CreatePartitionsTopic(name="no-such-topic", count=3, assignments=None),
    ]
    answer = wire.call(CreatePartitionsRequest(topics=topics, timeout_ms=5000), 3)
    rows = {row.name: row.error_code for row in answer.results}
    assert rows[name] == 0
    assert rows["no-such-topic"] != 0


def test_describe_configs_gives_every_key(wire: WireClient, make_topic: MakeTopic) -> None:
    entries = configs(wire, TOPIC, make_topic(retention_ms="5000"))
    for key in ("cleanup.policy", "segment.bytes", "min.insync.replicas", "compression.type"):
        assert key in entries
    retention = entries["retention.ms"]
    assert retention.value == "5000"  # type: ignore[attr-defined]
    assert retention.config_source == 1  # type: ignore[attr-defined]
    policy = entries["cleanup.policy"]
    assert policy.config_source == 5  # type: ignore[attr-defined]
    assert policy.documentation  # type: ignore[attr-defined]


def test_a_broker_has_num_partitions(wire: WireClient) -> None:
    entries = configs(wire, BROKER, "1")
    assert entries["num.partitions"].value == "1"  # type: ignore[attr-defined]
    assert entries["advertised.listeners"].value  # type: ignore[attr-defined]


def test_append_and_subtract(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert alter(wire, topic, SET, "compact") == 0
    assert configs(wire, TOPIC, topic)["cleanup.policy"].value == "compact"  # type: ignore[attr-defined]
    assert alter(wire, topic, APPEND, "delete") == 0
    assert configs(wire, TOPIC, topic)["cleanup.policy"].value == "compact,delete"  # type: ignore[attr-defined]
    assert alter(wire, topic, SUBTRACT, "compact") == 0
    assert configs(wire, TOPIC, topic)["cleanup.policy"].value == "delete"  # type: ignore[attr-defined]
    assert alter(wire, topic, DELETE, None) == 0


def test_log_dirs_are_described(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    answer = wire.call(DescribeLogDirsRequest(topics=None), 4)
    assert answer.error_code == 0
    assert answer.results
    found = {
        (row.name, partition.partition_index)
        for directory in answer.results
        for row in directory.topics
        for partition in row.partitions
    }
    assert {(topic, 0), (topic, 1)} <= found


def test_acls_are_answered(wire: WireClient) -> None:
    request = DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    answer = wire.call(request, 3)
    assert answer.resources == []


@pytest.mark.parametrize("length", [209, 210, 249])
def test_long_topic_names_can_be_deleted(wire: WireClient, length: int) -> None:
    name = "n" * length
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    assert wire.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
    assert wire.call(request, 6).responses[0].error_code == 0
