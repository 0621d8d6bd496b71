"""CreateTopics: defaults, assignments, settings and what is refused."""

from collections.abc import Callable

import pytest

from tests.server.handlers.admin_calls import create_topic, describe_topic
from tidelog.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]


def topic_of(name: str, partitions: int = -1, replicas: int = -1) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)


@pytest.mark.parametrize("version", range(2, 8))
def test_counts_of_minus_one_are_the_brokers(
    wire: WireClient, new_name: NewName, version: int
) -> None:
    topic = new_name("topic")
    (row,) = wire.call(CreateTopicsRequest(topics=[topic_of(topic)]), version).topics
    assert (row.name, row.error_code) == (topic, 0)
    assert row.num_partitions == (2 if version >= 5 else -1)
    assert row.replication_factor == (1 if version >= 5 else -1)
    assert (row.topic_id != ZERO_UUID) is (version >= 7)
    assert len(describe_topic(wire, topic).partitions) == 2


def test_the_answer_tells_the_settings_of_the_topic(wire: WireClient, new_name: NewName) -> None:
    row = create_topic(wire, new_name("topic"), retention_ms="1234")
    assert row.configs is not None
    configs = {config.name: config for config in row.configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1234", 1)
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == (
        "delete",
        5,
    )


def test_the_answer_tells_settings_that_kafka_does_not_have_only_when_they_are_asked_for(
    wire: WireClient, new_name: NewName
) -> None:
    row = create_topic(wire, new_name("topic"))
    assert row.configs is not None
    assert "durability" not in [config.name for config in row.configs]
    row = create_topic(wire, new_name("topic"), durability="page-cache")
    assert row.configs is not None
    configs = {config.name: config.value for config in row.configs}
    assert configs["durability"] == "page-cache"


def test_validation_only_creates_nothing(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    request = CreateTopicsRequest(topics=[topic_of(topic, 4, 1)], validate_only=True)
    (row,) = wire.call(request, 7).topics
    assert (row.error_code, row.num_partitions) == (0, 4)
    assert describe_topic(wire, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_replicas_can_be_assigned(wire: WireClient, new_name: NewName) -> None:
    topic = topic_of(new_name("topic"))
    topic.assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in range(3)
    ]
    (row,) = wire.call(CreateTopicsRequest(topics=[topic]), 7).topics
    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 3, 1)


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        ([(0, [7])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1]), (0, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(1, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1, 1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_wrong_assignments_are_refused(
    wire: WireClient,
    new_name: NewName,
    assignments: list[tuple[int, list[int]]],
    expected: ErrorCode,
) -> None:
    topic = topic_of(new_name("topic"))
    topic.assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in assignments
    ]
    (row,) = wire.call(CreateTopicsRequest(topics=[topic]), 7).topics
    assert row.error_code == expected
    assert row.error_message


@pytest.mark.parametrize(
    ("partitions", "replicas", "expected"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_wrong_counts_are_refused(
    wire: WireClient, new_name: NewName, partitions: int, replicas: int, expected: ErrorCode
) -> None:
    topic = topic_of(new_name("topic"), partitions, replicas)
    (row,) = wire.call(CreateTopicsRequest(topics=[topic]), 7).topics
    assert row.error_code == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [("retention.ms", "soon"), ("retention.mss", "1"), ("cleanup.policy", "shrink")],
)
def test_wrong_settings_are_refused(
    wire: WireClient, new_name: NewName, name: str, value: str
) -> None:
    topic = topic_of(new_name("topic"))
    topic.configs = [CreatableTopicConfig(name=name, value=value)]
    (row,) = wire.call(CreateTopicsRequest(topics=[topic]), 7).topics
    assert row.error_code == ErrorCode.INVALID_CONFIG
    assert name in (row.error_message or "")


def test_each_topic_succeeds_or_fails_by_itself(wire: WireClient, new_name: NewName) -> None:
    good, twice, existing = new_name("good"), new_name("twice"), new_name("existing")
    create_topic(wire, existing)
    names = [good, twice, twice, existing, "bad name"]
    rows = wire.call(CreateTopicsRequest(topics=[topic_of(name) for name in names]), 7).topics
    assert {row.name: row.error_code for row in rows} == {
        good: ErrorCode.NONE,
        twice: ErrorCode.INVALID_REQUEST,
        existing: ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
