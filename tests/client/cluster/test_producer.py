"""The producer: against a real broker, and against scripted ones for what goes wrong on the way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest

from tests.client.cluster.scripted_cluster import ScriptedCluster, orders
from tidelog.client.cluster import RETRIABLE, Cluster, ClusterClient, Stale, Topics
from tidelog.client.cluster.fetcher import Fetcher, FetchSettings
from tidelog.client.cluster.producer import Producer, ProducerSettings
from tidelog.client.errors import BrokerError, PublishError
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Record
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing import Broker

_numbers = count(1)

RETRIED = [code for code, stale in RETRIABLE.items() if stale is not Stale.COORDINATOR]
UNNUMBERED = ProducerSettings(acks=1, is_idempotent=False)


@pytest.fixture
def client(broker: Broker) -> Iterator[ClusterClient]:
    with Cluster(broker.bootstrap_servers) as cluster:
        yield ClusterClient(cluster, 30.0)


@pytest.fixture
def topic(client: ClusterClient) -> str:
    name = f"producer-{next(_numbers)}"
    Topics(client).create([name], partitions=3)
    return name


def read(client: ClusterClient, topic: str, partitions: int = 3) -> dict[int, list[Record]]:
    """All records by partition."""
    found: dict[int, list[Record]] = {number: [] for number in range(partitions)}
    names = {TopicPartition(topic, number): 0 for number in found}
    with Fetcher(client, FetchSettings()) as fetcher:
        fetcher.assign(names)
        while fetcher.at_end != names.keys():
            for fetched in fetcher.poll(1.0):
                found[fetched.partition.partition] += fetched.records
    return found


# A real broker


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("compression", list(Compression))
def test_records_arrive_as_they_were_sent(
    client: ClusterClient, topic: str, acks: int, compression: Compression
) -> None:
    settings = ProducerSettings(acks=acks, is_idempotent=acks == -1, compression=compression)
    headers = [("a", b"1"), ("a", None)]
    with Producer(client, settings) as producer:
        producer.layout(topic)
        producer.send(TopicPartition(topic, 2), b"key", b"value", headers, timestamp_ms=1234)
        producer.send(TopicPartition(topic, 2), None, None)
        producer.send(TopicPartition(topic, 0), b"", b"")
        producer.flush()
    found = read(client, topic)
    first, second = found[2]
    assert first == Record(0, 1234, b"key", b"value", headers)
    assert (second.offset, second.key, second.value, second.headers) == (1, None, None, [])
    assert abs(second.timestamp - time.time() * 1000) < 60_000
    assert [(each.key, each.value) for each in found[0]] == [(b"", b"")]
    assert found[1] == []


@pytest.mark.parametrize("settings", [ProducerSettings(batch_bytes=1000), ProducerSettings()])
def test_many_records_keep_their_order(
    client: ClusterClient, topic: str, settings: ProducerSettings
) -> None:
    with Producer(client, settings) as producer:
        producer.layout(topic)
        for number in range(5000):
            producer.send(TopicPartition(topic, number % 3), None, b"%d" % number)
        producer.flush()
        producer.flush()
    for partition, records in read(client, topic).items():
        assert [int(each.value or b"") for each in records] == list(range(partition, 5000, 3))


def test_a_batch_that_is_too_large_is_sent_in_parts(client: ClusterClient, topic: str) -> None:
    Topics(client).alter_settings(topic, {"max.message.bytes": "3000"})
    with Producer(client, ProducerSettings(batch_bytes=40_000)) as producer:
        producer.layout(topic)
        for number in range(1000):
            producer.send(TopicPartition(topic, 0), None, b"%0100d" % number)
        producer.flush()
    values = [int(each.value or b"") for each in read(client, topic)[0]]
    assert values == list(range(1000))


def test_a_record_that_is_too_large_is_refused(client: ClusterClient, topic: str) -> None:
    Topics(client).alter_settings(topic, {"max.message.bytes": "3000"})
    with Producer(client, ProducerSettings()) as producer:
        producer.layout(topic)
        producer.send(TopicPartition(topic, 0), None, bytes(4000))
        with pytest.raises(PublishError, match=rf"{topic}-0: a record of 4\d{{3}} bytes is larger"):
            producer.flush()


def test_the_layout_has_partitions_and_racks(broker: Broker, client: ClusterClient) -> None:
    name = f"made-by-asking-{next(_numbers)}"
    with Producer(client, ProducerSettings()) as producer:
        layout = producer.layout(name)
        assert layout.leader_racks == ("r1",)
        assert producer.layout(name) is layout
        with pytest.raises(PublishError, match="cannot write to the topic a b: INVALID_TOPIC"):
            producer.layout("a b")


def test_a_topic_that_nobody_makes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.client.cluster.producer._TOPIC_TIMEOUT_S", 0.2)
    with ScriptedCluster().client() as client, Producer(client, ProducerSettings()) as producer:
        expected = "cannot write to the topic gone: UNKNOWN_TOPIC_OR_PARTITION"
        with pytest.raises(BrokerError, match=expected):
            producer.layout("gone")


def test_a_broker_that_restarts_is_waited_for() -> None:
    with (
        Broker(mode="process") as broker,
        Cluster(broker.bootstrap_servers) as cluster,
        Producer(ClusterClient(cluster, 30.0), ProducerSettings(batch_bytes=500)) as producer,
    ):
        producer.layout("orders")
        for number in range(100):
            producer.send(orders(0), None, b"%d" % number)
        broker.kill()
        broker.start()
        for number in range(100, 200):
            producer.send(orders(0), None, b"%d" % number)
        producer.flush()
        records = read(ClusterClient(cluster.sibling(), 30.0), "orders", 1)[0]
    assert [int(each.value or b"") for each in records] == list(range(200))


def test_without_acknowledgements_it_is_told_when_the_broker_went_away() -> None:
    with (
        Broker(mode="process") as broker,
        Cluster(broker.bootstrap_servers) as cluster,
        Producer(
            ClusterClient(cluster, 30.0), ProducerSettings(acks=0, is_idempotent=False)
        ) as producer,
    ):
        producer.layout("orders")
        producer.send(orders(0), None, b"x")
        producer.flush()
        broker.kill()
        with pytest.raises(PublishError, match="records may be lost"):
            producer.flush()


def test_only_acks_all_goes_with_idempotence() -> None:
    with pytest.raises(PublishError, match="needs acks=all, not acks=1"):
        ProducerSettings(acks=1)


# Scripted brokers


def send_batches(client: ClusterClient, settings: ProducerSettings, batches: int = 3) -> None:
    """Batches of two records each to one partition."""
    with Producer(client, settings) as producer:
        producer.layout("orders")
        for _ in range(batches):
            producer.send(orders(0), None, b"x" * settings.batch_bytes)
            producer.send(orders(0), None, b"")
        producer.flush()


@pytest.mark.parametrize("code", RETRIED)
def test_what_was_refused_for_a_moment_is_sent_again_in_order(code: ErrorCode) -> None:
    gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    script = ScriptedCluster(refusals={0: [code, gap, gap, gap, gap]})
    with script.client() as client, Producer(client, ProducerSettings(batch_bytes=100)) as producer:
        producer.layout("orders")
        for _ in range(5):
            producer.send(orders(0), None, bytes(100))
        producer.flush()
    assert script.stored == [(0, 0, sequence) for sequence in range(5)]


def test_records_follow_a_leader_that_moves() -> None:
    refused = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    script = ScriptedCluster(leaders={0: [0, 1]}, refusals={0: refused})
    with script.client() as client, Producer(client, ProducerSettings()) as producer:
        producer.layout("orders")
        producer.send(orders(0), None, b"x")
        producer.flush()
        script.brokers[0].stop()
        producer.send(orders(0), None, b"x")
        producer.flush()
    assert script.stored == [(1, 0, 0), (1, 0, 1)]


def test_what_is_stored_already_counts_as_acknowledged() -> None:
    script = ScriptedCluster(refusals={0: [ErrorCode.DUPLICATE_SEQUENCE_NUMBER]})
    with script.client() as client:
        send_batches(client, ProducerSettings(batch_bytes=100))
    assert (0, 0, 0) not in script.stored


def test_records_without_numbers_are_sent_again_too() -> None:
    script = ScriptedCluster(refusals={0: [ErrorCode.NOT_ENOUGH_REPLICAS]})
    with script.client() as client, Producer(client, UNNUMBERED) as producer:
        producer.layout("orders")
        producer.send(orders(0), None, b"x")
        producer.flush()
    assert script.stored == [(0, 0, -1)]


@pytest.mark.parametrize(
    ("refusals", "settings", "expected"),
    [
        ([ErrorCode.TOPIC_AUTHORIZATION_FAILED], {}, "orders-0: TOPIC_AUTHORIZATION_FAILED"),
        # Without a failure before it there is no gap that this producer made.
        ([ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER], {}, "orders-0: OUT_OF_ORDER_SEQUENCE_NUMBER"),
        (
            [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000,
            {"delivery_timeout_s": 0.3},
            "orders-0: records were not acknowledged within 0.3 s: NOT_ENOUGH_REPLICAS",
        ),
    ],
)
def test_what_is_refused_for_good_is_told(
    refusals: list[ErrorCode], settings: dict[str, float], expected: str
) -> None:
    script = ScriptedCluster(refusals={0: refusals})
    made = ProducerSettings(**settings)  # type: ignore[arg-type]
    with script.client() as client, Producer(client, made) as producer:
        producer.layout("orders")
        producer.send(orders(0), None, b"x")
        with pytest.raises(PublishError, match=expected):
            producer.flush()


def test_a_leader_that_stays_away_is_told() -> None:
    script = ScriptedCluster()
    settings = ProducerSettings(delivery_timeout_s=0.3)
    with script.client(nodes=1) as client, Producer(client, settings) as producer:
        producer.layout("orders")
        producer.send(orders(0), None, b"x")
        producer.flush()
        script.brokers[0].stop()
        producer.send(orders(0), None, b"x")
        with pytest.raises(PublishError, match=r"not acknowledged within 0\.3 s: .*no broker"):
            producer.flush()
