"""Metadata: brokers, topics, leaders, and topics that come into being."""

from collections.abc import Callable

import pytest

from tests.server.handlers.admin_calls import create_topic, describe_topic
from tests.server.handlers.settings.test_describe_configs import by_name as configs_of
from tests.server.handlers.settings.test_describe_configs import describe
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.uuids import ZERO_UUID
from tidelog.testing.broker import Broker
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]


def by_name(*names: str | None) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


@pytest.mark.parametrize("version", range(14))
def test_every_version_names_broker_topic_and_leader(
    wire: WireClient, handlers_broker: Broker, new_name: NewName, version: int
) -> None:
    topic = new_name("topic")
    created = create_topic(wire, topic, partitions=3)
    response = wire.call(MetadataRequest(topics=by_name(topic)), version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", handlers_broker.port)
    (row,) = response.topics
    assert (row.error_code, row.name, len(row.partitions)) == (0, topic, 3)
    for index, partition in enumerate(row.partitions):
        assert partition.error_code == 0
        assert (partition.partition_index, partition.leader_id) == (index, 1)
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        assert partition.offline_replicas == []
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    assert broker.rack == ("rack-a" if version >= 1 else None)
    assert response.controller_id == (1 if version >= 1 else -1)
    assert row.topic_id == (created.topic_id if version >= 10 else ZERO_UUID)
    if version >= 2:
        assert len(response.cluster_id) == 22


def test_version_0_takes_an_empty_list_for_all_topics(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    assert topic in [row.name for row in wire.call(MetadataRequest(topics=[]), 0).topics]
    assert wire.call(MetadataRequest(topics=[]), 1).topics == []
    assert topic in [row.name for row in wire.call(MetadataRequest(topics=None), 1).topics]


def test_a_missing_topic_is_created_and_has_its_leaders_at_once(
    wire: WireClient, new_name: NewName
) -> None:
    topic = new_name("auto")
    (row,) = wire.call(MetadataRequest(topics=by_name(topic)), 9).topics
    assert (row.error_code, len(row.partitions)) == (0, 2)
    assert [partition.leader_id for partition in row.partitions] == [1, 1]


def test_a_missing_topic_is_not_created_when_the_client_does_not_want_it(
    wire: WireClient, new_name: NewName
) -> None:
    topic = new_name("auto")
    for _ in range(2):
        request = MetadataRequest(topics=by_name(topic), allow_auto_topic_creation=False)
        (row,) = wire.call(request, 9).topics
        assert (row.name, row.error_code) == (topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_names_that_no_topic_can_have_are_refused(wire: WireClient) -> None:
    names = ["", ".", "..", "white space", "umläut", "x" * 250]
    rows = wire.call(MetadataRequest(topics=by_name(*names)), 9).topics
    assert [row.name for row in rows] == names
    assert {row.error_code for row in rows} == {ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_the_longest_name_works_from_creation_to_deletion(
    wire: WireClient, new_name: NewName
) -> None:
    topic = new_name("long").ljust(249, "x")
    (row,) = wire.call(MetadataRequest(topics=by_name(topic)), 9).topics
    assert row.error_code == 0
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)])
    assert wire.call(deletion, 6).responses[0].error_code == 0


def test_a_topic_that_collides_with_another_is_not_created(
    wire: WireClient, new_name: NewName
) -> None:
    topic = new_name("dotted.name")
    create_topic(wire, topic)
    (row,) = wire.call(MetadataRequest(topics=by_name(topic.replace(".", "_"))), 9).topics
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_topics_are_found_by_id(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    topic_id = create_topic(wire, topic).topic_id
    asked = [
        MetadataRequestTopic(topic_id=topic_id, name=None),
        MetadataRequestTopic(topic_id=b"\x07" * 16, name=None),
    ]
    known, unknown = wire.call(MetadataRequest(topics=asked), 12).topics
    assert (known.error_code, known.name, known.topic_id) == (0, topic, topic_id)
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert unknown.topic_id == b"\x07" * 16


def test_ids_and_null_names_are_refused_before_version_12(wire: WireClient) -> None:
    for topic in (MetadataRequestTopic(name=None), MetadataRequestTopic(topic_id=b"\x07" * 16)):
        (row,) = wire.call(MetadataRequest(topics=[topic]), 11).topics
        assert row.error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_asked_for_twice_is_told_once(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    assert len(wire.call(MetadataRequest(topics=by_name(topic, topic)), 9).topics) == 1


def test_a_topic_made_again_has_another_id(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    first_id = create_topic(wire, topic).topic_id
    wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)]), 6)
    assert create_topic(wire, topic).topic_id != first_id
    assert describe_topic(wire, topic).topic_id != first_id


def test_authorized_operations_are_told_when_asked_for(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    asked = MetadataRequest(
        topics=by_name(topic),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    response = wire.call(asked, 8)
    assert response.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert response.cluster_authorized_operations == 0b1_1111_1010_0000
    silent = wire.call(MetadataRequest(topics=by_name(topic)), 8)
    assert silent.topics[0].topic_authorized_operations == -(2**31)
    assert silent.cluster_authorized_operations == -(2**31)


def test_internal_topics_are_made_as_they_must_be(wire: WireClient) -> None:
    (row,) = wire.call(MetadataRequest(topics=by_name("__consumer_offsets")), 9).topics
    assert (row.error_code, row.is_internal, len(row.partitions)) == (0, True, 4)
    configs = configs_of(describe(wire, 2, "__consumer_offsets"))
    assert configs["cleanup.policy"].value == "compact"
    assert configs["segment.bytes"].value == str(100 * 1024 * 1024)
