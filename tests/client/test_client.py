"""The SDK against a real broker."""

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass

import pytest

import tidelog.client
from tidelog.client import (
    Client,
    ConnectError,
    ConsumeError,
    Message,
    PublishError,
    SerializationError,
    connect,
)
from tidelog.client.partitioners import HotKeySplitting, KeyHash, RackAware, RoundRobin, read_salt
from tidelog.client.serializers import JsonSerializer
from tidelog.testing import Broker


@dataclass
class Order:
    id: int
    item: str


def read(client: Client, topic: str, count: int) -> list[Message]:
    messages: list[Message] = []
    with client.consume(topic, group=f"read-{topic}", idle_timeout_s=20) as subscription:
        for batch in subscription:
            messages += batch
            batch.commit()
            if len(messages) >= count:
                break
    assert len(messages) == count
    return messages


def test_publish_and_consume(client: Client, topic: str) -> None:
    future = client.publish(topic, key="k", value="v", headers={"h": "1"}, timestamp_ms=1234)
    client.flush()
    delivery = future.result(0)
    (message,) = read(client, topic, 1)
    assert (message.key, message.value, message.timestamp_ms) == (b"k", b"v", 1234)
    assert message.header("h") == b"1"
    assert (message.partition, message.offset) == (delivery.partition, delivery.offset)


def test_a_group_goes_on_at_its_commit(client: Client, topic: str) -> None:
    for number in range(10):
        client.publish(topic, value=str(number), partition=0)
    client.flush()
    group = f"goes-on-{topic}"
    with client.consume(topic, group, max_batch=4, idle_timeout_s=20) as subscription:
        first = next(iter(subscription))
        first.commit()
    seen = len(first)
    assert 1 <= seen <= 4
    with client.consume(topic, group, max_batch=100, idle_timeout_s=20) as subscription:
        second = next(iter(subscription))
    assert second.messages[0].offset == seen


def test_create_topic_says_whether_it_is_new(client: Client, topic: str) -> None:
    assert client.create_topic(f"{topic}-new", partitions=1)
    assert not client.create_topic(f"{topic}-new", partitions=1)


def test_nobody_there_is_a_clear_error() -> None:
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1 within 1 s"):
        connect("127.0.0.1:1", timeout_s=1)


def test_a_record_that_is_too_large_is_an_error_of_the_flush(client: Client, topic: str) -> None:
    client.create_topic(f"{topic}-small", partitions=1, config={"max.message.bytes": "1000"})
    future = client.publish(f"{topic}-small", value=bytes(5000))
    with pytest.raises(PublishError, match="1 records"):
        client.flush()
    with pytest.raises(PublishError):
        future.result(0)


def test_typed_json_both_ways(broker: Broker, topic: str) -> None:
    serializer = JsonSerializer(Order)
    with connect(broker.bootstrap_servers, value_serializer=serializer) as client:
        client.publish(topic, value=Order(1, "tea"))
        client.flush()
        (message,) = read(client, topic, 1)
        assert message.value == Order(1, "tea")
        with pytest.raises(SerializationError):
            client.publish(topic, value={"id": "x"})


def test_bytes_that_do_not_parse_stop_and_are_not_skipped(broker: Broker, topic: str) -> None:
    with connect(broker.bootstrap_servers) as plain:
        plain.publish(topic, value=b'{"id":1,"item":"a"}', partition=0)
        plain.publish(topic, value=b"garbage", partition=0)
        plain.flush()
    serializer = JsonSerializer(Order)
    with connect(broker.bootstrap_servers, value_serializer=serializer) as client:
        subscription = client.consume(topic, f"stops-{topic}", max_batch=10)
        for _ in range(2):
            with pytest.raises(SerializationError, match="offset 1"):
                for _batch in subscription:
                    pass


def test_max_batch_is_checked(client: Client, topic: str) -> None:
    with pytest.raises(ConsumeError, match="max_batch"):
        client.consume(topic, "g", max_batch=0)


def test_the_default_partitioner_is_the_java_clients(client: Client, topic: str) -> None:
    futures = {f"key-{i}": client.publish(topic, key=f"key-{i}", value="x") for i in range(50)}
    client.flush()
    layout = client.layout_of(topic)
    for key, future in futures.items():
        assert future.result(0).partition == KeyHash().choose(layout, key.encode()).partition


def test_round_robin_spreads_evenly(broker: Broker, topic: str) -> None:
    with connect(broker.bootstrap_servers, partitioner=RoundRobin()) as client:
        futures = [client.publish(topic, key="same", value="x") for _ in range(40)]
        client.flush()
    assert Counter(f.result(0).partition for f in futures) == {0: 10, 1: 10, 2: 10, 3: 10}


def test_rack_aware_reads_the_racks_of_the_leaders(broker: Broker, topic: str) -> None:
    with connect(broker.bootstrap_servers, partitioner=RackAware("r1")) as client:
        assert client.layout_of(topic).leader_racks == ("r1",) * 4
        client.publish(topic, value="x")
        client.flush()


def test_hot_keys_are_split_and_carry_their_salt(broker: Broker, topic: str) -> None:
    partitioner = HotKeySplitting(threshold=0.2, ways=3)
    with connect(broker.bootstrap_servers, partitioner=partitioner) as client:
        futures = [client.publish(topic, key="hot", value=str(i)) for i in range(600)]
        client.flush()
        assert len({future.result(0).partition for future in futures}) == 3
        messages = read(client, topic, 600)
    assert sum(read_salt(message.headers) is not None for message in messages) >= 400


def test_the_wire_client_does_not_import_librdkafka() -> None:
    code = "import sys, tidelog.client.cluster; assert 'confluent_kafka' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there() -> None:
    for name in tidelog.client.__all__:
        assert getattr(tidelog.client, name) is not None
