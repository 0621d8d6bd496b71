"""One broker for all tests of groups; each test has topics and groups of its own."""

from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.testing import Broker

_numbers = count(1)

# Heartbeats are frequent so that rebalances are quick; sessions are long enough for a slow machine.
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(mode="process", settings=SETTINGS) as running:
        yield running


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture(scope="session")
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def name() -> str:
    """For the topic and the group of a test."""
    return f"groups-{next(_numbers)}"


@pytest.fixture
def topic(admin: AdminClient, name: str) -> str:
    """A topic of four partitions with 40 records, ten in each."""
    create_topic(admin, name, 4)
    fill(admin_bootstrap(admin), name, 4, 10)
    return name


def admin_bootstrap(admin: AdminClient) -> str:
    (node,) = admin.list_topics(timeout=20).brokers.values()
    return f"{node.host}:{node.port}"


def create_topic(admin: AdminClient, topic: str, partitions: int) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


def fill(bootstrap: str, topic: str, partitions: int, count_each: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for index in range(count_each):
        for partition in range(partitions):
            producer.produce(topic, value=f"{partition}:{index}", partition=partition)
    assert producer.flush(30) == 0
