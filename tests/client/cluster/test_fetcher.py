"""The fetcher against real brokers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Producer as TransactionalProducer

from tests.client.cluster.scripted_cluster import ScriptedCluster, orders
from tidelog.client.cluster import (
    EARLIEST,
    LATEST,
    RETRIABLE,
    Cluster,
    ClusterClient,
    Stale,
    Topics,
)
from tidelog.client.cluster.fetcher import Fetcher, FetchSettings
from tidelog.client.cluster.producer import Producer, ProducerSettings
from tidelog.client.errors import BrokerError, ConsumeError, RetriesExhausted
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing import Broker

_numbers = count(1)

LEADER_MOVED = [code for code, stale in RETRIABLE.items() if stale & Stale.METADATA]


@pytest.fixture
def client(broker: Broker) -> Iterator[ClusterClient]:
    with Cluster(broker.bootstrap_servers) as cluster:
        yield ClusterClient(cluster, 30.0)


@pytest.fixture
def topic(client: ClusterClient) -> str:
    name = f"fetcher-{next(_numbers)}"
    Topics(client).create([name], partitions=3)
    return name


def produce(client: ClusterClient, topic: str, values: list[bytes], partition: int = 0) -> None:
    with Producer(client, ProducerSettings()) as producer:
        producer.layout(topic)
        for value in values:
            producer.send(TopicPartition(topic, partition), None, value)
        producer.flush()


def read_to_end(fetcher: Fetcher) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    while not fetcher.positions.keys() <= fetcher.at_end:
        for fetched in fetcher.poll(1.0):
            values = [each.value or b"" for each in fetched.records]
            found.setdefault(fetched.partition.partition, []).extend(values)
    return found


def test_partitions_are_read_from_their_positions(client: ClusterClient, topic: str) -> None:
    values = [b"%d" % number for number in range(100)]
    for partition in range(2):
        produce(client, topic, values, partition)
    with Fetcher(client, FetchSettings()) as fetcher:
        # In the middle of a batch, at the end, and in a partition that is empty.
        starts = {TopicPartition(topic, 0): 40, TopicPartition(topic, 1): 100}
        fetcher.assign({**starts, TopicPartition(topic, 2): 0})
        assert read_to_end(fetcher) == {0: values[40:]}
        assert set(fetcher.positions.values()) == {100, 0}
        produce(client, topic, [b"more"], 1)
        found = [each.records[0].value for each in fetcher.poll(10.0)]
        assert found == [b"more"]
        assert TopicPartition(topic, 1) in fetcher.at_end


@pytest.mark.parametrize(
    "settings", [FetchSettings(), FetchSettings(max_bytes=1, partition_max_bytes=1)]
)
def test_much_is_read_in_order(client: ClusterClient, topic: str, settings: FetchSettings) -> None:
    values = [b"%0200d" % number for number in range(2000)]
    for partition in range(3):
        with Producer(client, ProducerSettings(batch_bytes=5000)) as producer:
            producer.layout(topic)
            for value in values:
                producer.send(TopicPartition(topic, partition), None, value)
            producer.flush()
    with Fetcher(client, settings) as fetcher:
        fetcher.assign({TopicPartition(topic, number): 0 for number in range(3)})
        assert read_to_end(fetcher) == dict.fromkeys(range(3), values)


def test_a_partition_that_was_removed_is_read_no_further(client: ClusterClient, topic: str) -> None:
    produce(client, topic, [b"0"], 0)
    with Fetcher(client, FetchSettings()) as fetcher:
        fetcher.assign({TopicPartition(topic, number): 0 for number in range(2)})
        read_to_end(fetcher)
        fetcher.remove(TopicPartition(topic, 0))
        produce(client, topic, [b"1"], 0)
        produce(client, topic, [b"2"], 1)
        found: list[tuple[int, int]] = []
        while not found:
            found = [(each.partition.partition, len(each.records)) for each in fetcher.poll(1.0)]
        assert found == [(1, 1)]


def test_transactions_show_what_was_committed(
    broker: Broker, client: ClusterClient, topic: str
) -> None:
    producer = TransactionalProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic}
    )
    producer.init_transactions(30)
    for value, is_committed in ((b"1", True), (b"2", False), (b"3", True), (b"4", False)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    for read_committed, expected in (
        (True, [b"1", b"3"]),
        (False, [b"1", b"2", b"3", b"4", b"open"]),
    ):
        with Fetcher(client, FetchSettings(read_committed=read_committed)) as fetcher:
            fetcher.assign({TopicPartition(topic, 0): 0})
            assert read_to_end(fetcher) == {0: expected}
    producer.abort_transaction(30)


@pytest.mark.parametrize(("reset", "expected"), [(EARLIEST, {0: [b"0", b"1"]}), (LATEST, {})])
def test_a_position_that_is_not_in_the_log_is_reset(
    client: ClusterClient, topic: str, reset: int, expected: dict[int, list[bytes]]
) -> None:
    produce(client, topic, [b"0", b"1"])
    with Fetcher(client, FetchSettings(reset=reset)) as fetcher:
        fetcher.assign({TopicPartition(topic, 0): 1000})
        assert read_to_end(fetcher) == expected
        assert fetcher.positions == {TopicPartition(topic, 0): 2}
    with Fetcher(client, FetchSettings(reset=None)) as fetcher:
        fetcher.assign({TopicPartition(topic, 0): 1000})
        with pytest.raises(ConsumeError, match=f"{topic}-0: offset 1000 is not in the log"):
            read_to_end(fetcher)


def test_a_topic_that_was_deleted_is_told(
    client: ClusterClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.client.cluster.fetcher._TOPIC_TIMEOUT_S", 0.3)
    with Fetcher(client, FetchSettings(timeout_s=math.inf)) as fetcher:
        fetcher.assign({TopicPartition(topic, 0): 0})
        read_to_end(fetcher)
        Topics(client).delete([topic])
        with pytest.raises(BrokerError) as raised:
            while True:
                list(fetcher.poll(1.0))
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_that_restarts_is_waited_for() -> None:
    with (
        Broker(mode="process") as broker,
        Cluster(broker.bootstrap_servers) as cluster,
        Fetcher(ClusterClient(cluster, 30.0), FetchSettings()) as fetcher,
    ):
        client = ClusterClient(cluster, 30.0)
        produce(client, "orders", [b"before"])
        fetcher.assign({orders(0): 0})
        assert read_to_end(fetcher) == {0: [b"before"]}
        broker.kill()
        assert list(fetcher.poll(0.5)) == []
        broker.start()
        produce(client, "orders", [b"after"])
        (found,) = fetcher.poll(30.0)
        assert [each.value for each in found.records] == [b"after"]


def test_a_broker_that_stays_away_is_told() -> None:
    with Cluster("127.0.0.1:1") as cluster:
        nobody = ClusterClient(cluster, 1.0)
        with Fetcher(nobody, FetchSettings(timeout_s=0.3)) as fetcher:
            fetcher.assign({orders(0): 0})
            with pytest.raises(RetriesExhausted, match=r"orders-0: nothing was read for 0\.3 s"):
                while True:
                    list(fetcher.poll(0.1))


@pytest.mark.parametrize("code", LEADER_MOVED)
def test_a_leader_that_has_moved_is_found(code: ErrorCode) -> None:
    script = ScriptedCluster(leaders={0: [0, 1]}, refusals={0: [code]})
    with script.client() as client, Fetcher(client, FetchSettings()) as fetcher:
        fetcher.assign({orders(0): 5})
        (found,) = fetcher.poll(30.0)
        assert [(each.offset, each.value) for each in found.records] == [(5, b"1")]


def test_partitions_of_several_leaders_are_read_at_once() -> None:
    script = ScriptedCluster(leaders={0: [0], 1: [1], 2: [1]})
    with script.client() as client, Fetcher(client, FetchSettings()) as fetcher:
        fetcher.assign({orders(number): 0 for number in range(3)})
        found: dict[int, bytes | None] = {}
        while len(found) < 3:
            for fetched in fetcher.poll(30.0):
                found[fetched.partition.partition] = fetched.records[0].value
        assert found == {0: b"0", 1: b"1", 2: b"1"}


def test_what_cannot_be_read_is_told() -> None:
    script = ScriptedCluster(refusals={0: [ErrorCode.TOPIC_AUTHORIZATION_FAILED]})
    with script.client() as client, Fetcher(client, FetchSettings()) as fetcher:
        fetcher.assign({orders(0): 0})
        with pytest.raises(BrokerError, match="orders-0: TOPIC_AUTHORIZATION_FAILED"):
            list(fetcher.poll(30.0))


def test_without_partitions_time_passes(client: ClusterClient) -> None:
    with Fetcher(client, FetchSettings()) as fetcher:
        assert list(fetcher.poll(0.05)) == []
