"""Groups and topics through the cluster client, against a real broker and real consumers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Consumer

from tidelog.client.cluster import Cluster, ClusterClient, Groups, Topics
from tidelog.client.errors import BrokerError
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing import Broker

_numbers = count(1)


@pytest.fixture
def client(broker: Broker) -> Iterator[ClusterClient]:
    with Cluster(broker.bootstrap_servers) as cluster:
        yield ClusterClient(cluster, 30.0)


@pytest.fixture
def name(client: ClusterClient) -> str:
    """Of a topic with two partitions, and of a group that is not there yet."""
    name = f"admin-{next(_numbers)}"
    Topics(client).create([name], partitions=2)
    return name


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_both_protocols_are_described(
    client: ClusterClient, broker: Broker, name: str, protocol: str
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": name,
            "client.id": "reader",
            "group.protocol": protocol,
        }
    )
    assigned: list[object] = []
    consumer.subscribe([name], on_assign=lambda _, partitions: assigned.extend(partitions))
    try:
        while not assigned:
            consumer.poll(0.1)
        found = Groups(client).describe(name)
        assert (found.state, found.kind, found.coordinator_id) == ("Stable", protocol, 1)
        (member,) = found.members
        assert member.client_id == "reader"
        assert sorted(member.partitions) == [TopicPartition(name, 0), TopicPartition(name, 1)]
        listed = {each.group_id: each.group_type.lower() for each in Groups(client).all()}
        assert listed[name] == protocol
        with pytest.raises(BrokerError, match=f"cannot delete {name}: NON_EMPTY_GROUP"):
            Groups(client).delete(name)
    finally:
        consumer.close()


def test_offsets_of_a_group_are_set_read_and_deleted(client: ClusterClient, name: str) -> None:
    groups = Groups(client)
    assert groups.describe(name).state == "Dead"
    assert groups.committed(name) == {}
    offsets = {TopicPartition(name, 0): 5, TopicPartition(name, 1): 0}
    groups.commit(name, offsets)
    assert groups.committed(name) == offsets
    assert groups.describe(name).state == "Empty"
    with pytest.raises(BrokerError, match="no-such-topic-0: UNKNOWN_TOPIC_OR_PARTITION"):
        groups.commit(name, {TopicPartition("no-such-topic", 0): 1})
    groups.delete(name)
    assert groups.describe(name).state == "Dead"


def test_what_the_broker_says_is_told(client: ClusterClient, name: str) -> None:
    topics = Topics(client)
    with pytest.raises(BrokerError, match=r"cannot create .*exists.*\(TOPIC_ALREADY_EXISTS\)"):
        topics.create([name])
    with pytest.raises(BrokerError) as raised:
        topics.describe("no-such-topic")
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        topics.add_partitions(name, 1)
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        topics.alter_settings(name, {"retention.ms": "soon"})


def test_a_topic_is_altered_and_deleted(client: ClusterClient, name: str) -> None:
    topics = Topics(client)
    topics.add_partitions(name, 3)
    topics.alter_settings(name, {"retention.ms": "60000"}, unset=["cleanup.policy"])
    assert len(topics.describe(name).partitions) == 3
    assert {each.name: each.value for each in topics.settings(name)}["retention.ms"] == "60000"
    topics.delete([name])
    assert name not in topics.all()
