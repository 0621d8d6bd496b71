"""The producer against brokers that refuse as Kafka may, but no broker does on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.client.cluster.scripted_cluster import ScriptedCluster
from tests.spark.sink.query import rows, sink_options
from tidelog.client.cluster import RETRIABLE, ClusterClient
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.encode.batches import BatchEncoder, EncodedBatch, EncoderSettings
from tidelog.spark.sink.lent_client import lent_client
from tidelog.spark.sink.producer import (
    ProduceError,
    Producer,
    ProducerIdentity,
    ProducerSettings,
)
from tidelog.spark.sink.topics import partition_count


@contextmanager
def client_of(script: ScriptedCluster) -> Iterator[ClusterClient]:
    with script.running(), lent_client(sink_options(script.bootstrap, "orders")) as client:
        yield client


def batch(client: ClusterClient) -> list[EncodedBatch]:
    settings = EncoderSettings("orders", 1_000_000, Compression.NONE)
    encoder = BatchEncoder(settings, lambda topic: partition_count(client, topic, timeout_s=30))
    return encoder.encode(rows(["v"]), 0)


def producer_of(client: ClusterClient, delivery_timeout_ms: int = 30_000) -> Producer:
    settings = ProducerSettings(delivery_timeout_ms=delivery_timeout_ms)
    return Producer(client, ProducerIdentity(7, 0), settings)


@pytest.mark.parametrize("code", RETRIABLE)
def test_a_batch_that_is_refused_for_a_moment_is_sent_again(code: ErrorCode) -> None:
    script = ScriptedCluster(leaders={0: [0, 1]}, refusals={0: [code], 1: [code]})
    with client_of(script) as client:
        producer = producer_of(client)
        producer.send(batch(client))
        producer.flush()
        producer.send(batch(client))
        producer.flush()
    assert script.stored == [(1, 0, 0), (1, 0, 1)]
    assert script.asked == [(0, "produce"), *[(1, "produce")] * 3]


def test_batches_follow_a_leader_whose_node_vanished() -> None:
    script = ScriptedCluster(leaders={0: [0, 1]})
    with client_of(script) as client:
        producer = producer_of(client)
        producer.send(batch(client))
        producer.flush()
        script.brokers[0].stop()
        producer.send(batch(client))
        producer.flush()
    assert script.stored == [(0, 0, 0), (1, 0, 1)]


def test_any_other_error_fails_at_once() -> None:
    script = ScriptedCluster(refusals={0: [ErrorCode.TOPIC_AUTHORIZATION_FAILED]})
    with (
        pytest.raises(ProduceError, match="orders-0: TOPIC_AUTHORIZATION_FAILED"),
        client_of(script) as client,
    ):
        producer = producer_of(client)
        producer.send(batch(client))
        producer.flush()
    assert script.asked == [(0, "produce")]


def test_batches_have_a_deadline() -> None:
    script = ScriptedCluster(refusals={0: [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000})
    text = "not acknowledged within kafka.delivery.timeout.ms, 200 ms.*NOT_ENOUGH_REPLICAS"
    with pytest.raises(ProduceError, match=text), client_of(script) as client:
        producer = producer_of(client, delivery_timeout_ms=200)
        producer.send(batch(client))
        producer.flush()
    assert 3 <= len(script.asked) <= 12
