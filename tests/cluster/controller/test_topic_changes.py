"""Scenarios of creating and deleting topics; each line is what a client would be answered."""

import pytest

from tests.cluster.cluster_host import ClusterHost, broker_uuid, outcome
from tidelog.cluster.controller.controller_settings import ControllerSettings
from tidelog.cluster.controller.topic_changes import (
    NewTopic,
    PartitionAddition,
    TopicSelector,
    create_partitions,
    create_topics,
    delete_topics,
)
from tidelog.cluster.metadata.records.settings import ConfigRecord
from tidelog.cluster.metadata.records.topics import PartitionRecord, TopicRecord
from tidelog.protocol.errors import ApiError, ErrorCode


def created(host: ClusterHost, *topics: NewTopic, validate_only: bool = False) -> list[str]:
    rows = host.decide(
        create_topics(
            topics, host.image, host.settings, host.random, host.new_id, validate_only=validate_only
        )
    )
    return [f"{row.name}: {outcome(row.error)}" for row in rows]


def test_a_topic_has_its_id_its_settings_and_partitions_at_epoch_zero() -> None:
    host = ClusterHost()
    decision = create_topics(
        [NewTopic("orders", 2, 1, configs={"retention.ms": "1000"})],
        host.image,
        host.settings,
        host.random,
        host.new_id,
    )
    assert [type(record) for record in decision.records] == [
        TopicRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    (row,) = host.decide(decision)
    topic = host.image.topics_by_name["orders"]
    assert (row.topic_id, row.partition_count, row.replication_factor) == (topic.topic_id, 2, 1)
    assert host.image.topics_by_id[row.topic_id] is topic
    assert host.image.topic_configs("orders") == {"retention.ms": "1000"}
    assert host.describe("orders", 1) == ("orders-1: leader 1 at epoch 0, replicas [1], isr [1]")
    assert topic.partitions[0].partition_epoch == 0
    assert topic.partitions[0].directories == (broker_uuid(100),)


def test_minus_one_means_the_brokers_defaults() -> None:
    settings = ControllerSettings(1, default_partition_count=4, default_replication_factor=2)
    host = ClusterHost([1, 2], settings=settings)
    host.create("orders")
    topic = host.image.topics_by_name["orders"]
    assert [len(partition.replicas) for partition in topic.partitions] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("topic", "answer"),
    [
        (NewTopic("taken"), "TOPIC_ALREADY_EXISTS: Topic 'taken' already exists."),
        (
            NewTopic("a", partition_count=0),
            "INVALID_PARTITIONS: Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic("a", partition_count=-2),
            "INVALID_PARTITIONS: Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic("a", replication_factor=0),
            "INVALID_REPLICATION_FACTOR: Replication factor must be larger than 0, "
            "or -1 to use the default value.",
        ),
        (
            NewTopic("a", replication_factor=2),
            "INVALID_REPLICATION_FACTOR: Unable to replicate the partition 2 time(s): The target "
            "replication factor of 2 cannot be reached because only 1 broker(s) are registered or "
            "some brokers have all their log directories cordoned.",
        ),
        (
            NewTopic("a", partition_count=10_001),
            "POLICY_VIOLATION: 10001 partitions are too many for one request; it may make 10000.",
        ),
        (
            NewTopic("", 1, 1),
            "INVALID_TOPIC_EXCEPTION: Topic name is invalid: the empty string is not allowed",
        ),
        (
            NewTopic("a b"),
            "INVALID_TOPIC_EXCEPTION: Topic name is invalid: 'a b' contains one or more characters "
            "other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (
            NewTopic("my_topic"),
            "INVALID_TOPIC_EXCEPTION: Topic 'my_topic' collides with existing topic: my.topic",
        ),
        (
            NewTopic("a", configs={"retention.mss": "1"}),
            "INVALID_CONFIG: Unknown topic config name: retention.mss. Did you mean retention.ms?",
        ),
        (
            NewTopic("a", configs={"retention.ms": "soon"}),
            "INVALID_CONFIG: Invalid value soon for configuration retention.ms: "
            "Not a number of type LONG",
        ),
        (
            NewTopic("a", configs={"retention.ms": None}),
            "INVALID_CONFIG: Null value not supported for topic configs: retention.ms",
        ),
        (
            NewTopic("a", 3, assignments={0: [1]}),
            "INVALID_REQUEST: A manual partition assignment was specified, but numPartitions "
            "was not set to -1.",
        ),
        (
            NewTopic("a", assignments={0: [1, 1]}),
            "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes the broker 1 "
            "more than once.",
        ),
        (
            NewTopic("a", assignments={0: [9]}),
            "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes broker 9, "
            "but no such broker is registered.",
        ),
        (
            NewTopic("a", assignments={0: []}),
            "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes "
            "an empty replica list.",
        ),
        (
            NewTopic("a", assignments={1: [1]}),
            "INVALID_REPLICA_ASSIGNMENT: partitions should be a consecutive 0-based "
            "integer sequence",
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_code(topic: NewTopic, answer: str) -> None:
    host = ClusterHost()
    host.create("taken")
    host.create("my.topic")
    before = host.image
    assert created(host, topic) == [f"{topic.name}: {answer}"]
    assert host.image is before


def test_one_wrong_topic_does_not_hold_up_the_others() -> None:
    host = ClusterHost()
    assert created(host, NewTopic("one"), NewTopic("a b"), NewTopic("two")) == [
        "one: ok",
        "a b: INVALID_TOPIC_EXCEPTION: Topic name is invalid: 'a b' contains one or more "
        "characters other than ASCII alphanumerics, '.', '_' and '-'",
        "two: ok",
    ]
    assert set(host.image.topics_by_name) == {"one", "two"}


def test_topics_of_one_request_collide_too_and_a_name_given_twice_fails_once() -> None:
    host = ClusterHost()
    assert created(
        host, NewTopic("a.b"), NewTopic("a_b"), NewTopic("twice"), NewTopic("twice")
    ) == [
        "a.b: ok",
        "a_b: INVALID_TOPIC_EXCEPTION: Topic 'a_b' collides with existing topic: a.b",
        "twice: INVALID_REQUEST: Duplicate topic name.",
    ]


def test_validation_alone_changes_nothing() -> None:
    host = ClusterHost()
    assert created(host, NewTopic("orders"), validate_only=True) == ["orders: ok"]
    assert not host.image.topics_by_name


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    host = ClusterHost([1, 2, 3])
    host.create("orders", assignments={0: [3, 1], 1: [2, 3]})
    assert host.describe("orders", 0) == (
        "orders-0: leader 3 at epoch 0, replicas [3, 1], isr [3, 1]"
    )
    assert host.describe("orders", 1) == (
        "orders-1: leader 2 at epoch 0, replicas [2, 3], isr [2, 3]"
    )


def test_a_fenced_broker_gets_replicas_but_is_not_in_sync() -> None:
    host = ClusterHost([1, 2])
    host.fence(1)
    host.create("orders", replication_factor=2)
    assert host.describe("orders") == "orders-0: leader 2 at epoch 0, replicas [2, 1], isr [2]"


def test_a_topic_deleted_and_created_again_has_a_new_id() -> None:
    host = ClusterHost()
    host.create("orders")
    first = host.image.topics_by_name["orders"].topic_id
    (row,) = host.decide(delete_topics([TopicSelector("orders")], host.image, host.settings))
    assert (row.name, row.topic_id, row.error) == ("orders", first, None)
    host.create("orders")
    assert host.image.topics_by_name["orders"].topic_id != first
    assert host.partition("orders").leader_epoch == 0


def test_topics_are_deleted_by_name_or_id_and_each_only_once() -> None:
    host = ClusterHost()
    for name in ("one", "two", "three", "four"):
        host.create(name)
    ids = {name: topic.topic_id for name, topic in host.image.topics_by_name.items()}
    rows = host.decide(
        delete_topics(
            [
                TopicSelector("one"),
                TopicSelector(topic_id=ids["two"]),
                TopicSelector("three"),
                TopicSelector(topic_id=ids["three"]),
                TopicSelector("none"),
                TopicSelector(topic_id=b"?" * 16),
                TopicSelector("four", ids["four"]),
                TopicSelector(),
            ],
            host.image,
            host.settings,
        )
    )
    assert [(row.name, row.error and row.error.code.name) for row in rows] == [
        ("one", None),
        ("two", None),
        ("three", "INVALID_REQUEST"),
        (None, "INVALID_REQUEST"),
        ("none", "UNKNOWN_TOPIC_OR_PARTITION"),
        (None, "UNKNOWN_TOPIC_ID"),
        ("four", "INVALID_REQUEST"),
        (None, "INVALID_REQUEST"),
    ]
    assert set(host.image.topics_by_name) == {"three", "four"}


def test_deletion_can_be_switched_off() -> None:
    host = ClusterHost(settings=ControllerSettings(1, delete_topic_enable=False))
    with pytest.raises(ApiError) as caught:
        delete_topics([TopicSelector("orders")], host.image, host.settings)
    assert caught.value.code is ErrorCode.TOPIC_DELETION_DISABLED


def test_partitions_are_added_and_never_taken_away() -> None:
    host = ClusterHost([1, 2])
    host.create("orders", partition_count=2, replication_factor=2)
    host.create("manual")

    def add(*additions: PartitionAddition) -> list[str]:
        rows = host.decide(create_partitions(additions, host.image, host.random))
        return [f"{row.name}: {outcome(row.error)}" for row in rows]

    assert add(PartitionAddition("orders", 4)) == ["orders: ok"]
    assert len(host.image.topics_by_name["orders"].partitions) == 4
    assert len(host.partition("orders", 3).replicas) == 2
    assert add(
        PartitionAddition("orders", 4),
        PartitionAddition("manual", 3, [[2], [1]]),
        PartitionAddition("none", 4),
    ) == [
        "orders: INVALID_PARTITIONS: Topic already has 4 partition(s).",
        "manual: ok",
        "none: UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition.",
    ]
    assert [each.leader for each in host.image.topics_by_name["manual"].partitions[1:]] == [2, 1]
    assert add(PartitionAddition("orders", 1)) == [
        "orders: INVALID_PARTITIONS: The topic orders currently has 4 partition(s); "
        "1 would not be an increase."
    ]
    assert add(PartitionAddition("manual", 5, [[1]])) == [
        "manual: INVALID_REPLICA_ASSIGNMENT: Attempted to add 2 additional partition(s), "
        "but only 1 assignment(s) were specified."
    ]
    assert add(PartitionAddition("manual", 4, [[1, 2]])) == [
        "manual: INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes a partition "
        "with 2 replica(s), but this is not consistent with previous partitions, "
        "which have 1 replica(s)."
    ]
    assert add(PartitionAddition("manual", 9), PartitionAddition("manual", 8)) == [
        "manual: INVALID_REQUEST: Duplicate topic in request."
    ]


def test_a_request_that_makes_too_many_records_is_refused() -> None:
    host = ClusterHost()
    rows = create_topics(
        [NewTopic("one", 6000), NewTopic("two", 6000)],
        host.image,
        host.settings,
        host.random,
        host.new_id,
    ).rows
    assert [row.error and row.error.code.name for row in rows] == [None, "POLICY_VIOLATION"]


def test_partitions_are_charged_before_they_come_or_go_and_refused_ones_do_not() -> None:
    host = ClusterHost()
    charged: list[int] = []

    def charge(count: int) -> None:
        charged.append(count)
        if sum(charged) > 10:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many")

    topics = [NewTopic("a", 3, 1), NewTopic("bad name", 9, 1), NewTopic("b", 4, 1)]
    create_topics(
        topics,
        host.image,
        host.settings,
        host.random,
        host.new_id,
        validate_only=True,
        charge=charge,
    )
    assert charged == []
    host.decide(
        create_topics(topics, host.image, host.settings, host.random, host.new_id, charge=charge)
    )
    assert charged == [3, 4]
    addition = [PartitionAddition("a", 5), PartitionAddition("b", 4)]
    host.decide(create_partitions(addition, host.image, host.random, charge=charge))
    assert charged == [3, 4, 2]
    selectors = [TopicSelector("a"), TopicSelector("none")]
    rows = host.decide(delete_topics(selectors, host.image, host.settings, charge=charge))
    assert charged == [3, 4, 2, 5]
    assert outcome(rows[0].error) == "THROTTLING_QUOTA_EXCEEDED: too many"
    assert "a" in host.image.topics_by_name
