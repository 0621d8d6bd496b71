"""The producer against brokers that refuse as Kafka may, but no broker does on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.client.cluster.scripted_cluster import ScriptedCluster
from tests.spark.sink.query import rows, sink_options
from tidelog.client.cluster import RETRIABLE, ClusterClient
from tidelog.client.cluster.batch_sender import SendSettings
from tidelog.client.cluster.encoded_batch import EncodedBatch
from tidelog.client.cluster.layouts import find_layout
from tidelog.client.cluster.producer_identity import ProducerIdentity
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.encode.batches import BatchEncoder, EncoderSettings
from tidelog.spark.errors import SparkError
from tidelog.spark.sink.lent_client import lent_client
from tidelog.spark.sink.producer import Producer


@contextmanager
def client_of(script: ScriptedCluster) -> Iterator[ClusterClient]:
    with script.running(), lent_client(sink_options(script.bootstrap, "orders")) as client:
        yield client


def batch(client: ClusterClient) -> list[EncodedBatch]:
    settings = EncoderSettings("orders", 1_000_000, Compression.NONE)
    layout = find_layout(client.cluster, "orders", 30.0)
    encoder = BatchEncoder(settings, lambda _: layout.partition_count)
    return encoder.encode(rows(["v"]), 0)


def producer_of(client: ClusterClient, delivery_timeout_s: float = 30.0) -> Producer:
    settings = SendSettings(delivery_timeout_s=delivery_timeout_s)
    return Producer(client.cluster, ProducerIdentity(7, 0), settings)


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
        pytest.raises(SparkError, match="orders-0: TOPIC_AUTHORIZATION_FAILED"),
        client_of(script) as client,
    ):
        producer = producer_of(client)
        producer.send(batch(client))
        producer.flush()
    assert script.asked == [(0, "produce")]


def test_batches_have_a_deadline() -> None:
    script = ScriptedCluster(refusals={0: [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000})
    text = "not acknowledged within kafka.delivery.timeout.ms, 200 ms.*NOT_ENOUGH_REPLICAS"
    with pytest.raises(SparkError, match=text), client_of(script) as client:
        producer = producer_of(client, delivery_timeout_s=0.2)
        producer.send(batch(client))
        producer.flush()
    assert 3 <= len(script.asked) <= 12
