"""The sender of batches, against scripted brokers: `test_producer` has what records show of it."""

from __future__ import annotations

import pytest

from tests.client.cluster.scripted_cluster import ScriptedCluster, orders
from tidelog.client.cluster import ClusterClient, WireConnection
from tidelog.client.cluster.batch_sender import BatchSender, SendSettings
from tidelog.client.cluster.encoded_batch import EncodedBatch
from tidelog.client.cluster.layouts import find_layout
from tidelog.client.cluster.producer_identity import ProducerIdentity
from tidelog.client.errors import DeliveryTimeout, PublishError
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.produce import ProduceResponse
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Record
from tidelog.protocol.schema import Message
from tidelog.protocol.topic_partition import TopicPartition

IDENTITY = ProducerIdentity(7, 0)


def batch(
    partition: int = 0, first_record: int = 0, *, count: int = 1, size: int = 1
) -> EncodedBatch:
    records = [Record(at, 0, None, bytes(size)) for at in range(count)]
    return EncodedBatch.encode(orders(partition), records, Compression.NONE, IDENTITY, first_record)


def sender_of(client: ClusterClient, settings: SendSettings | None = None) -> BatchSender:
    find_layout(client.cluster, "orders", 5.0)
    return BatchSender(client.cluster, settings or SendSettings())


@pytest.mark.parametrize(
    ("settings", "version"),
    [
        (SendSettings(), 12),
        (SendSettings(transactional_id="t", is_v2=True), 12),
        (SendSettings(transactional_id="t", is_v2=False), 11),
    ],
)
def test_the_flow_of_transactions_decides_the_version(settings: SendSettings, version: int) -> None:
    script = ScriptedCluster()
    with script.client() as client:
        sender = sender_of(client, settings)
        sender.send([batch()])
        sender.flush()
    assert script.brokers[0].versions_asked[ApiKey.PRODUCE] == {version}


def test_a_request_has_a_batch_of_each_partition_up_to_8_mb() -> None:
    script = ScriptedCluster(leaders={0: [0], 1: [0], 2: [0]})
    with script.client() as client:
        sender = sender_of(client)
        sender.send([batch(0), batch(1), batch(0, 1)])
        sender.flush()
        assert script.stored == [(0, 0, 0), (0, 1, 0), (0, 0, 1)]
        assert len(script.asked) == 2
        sender.send([batch(number, 9, size=3_000_000) for number in range(3)])
        sender.flush()
    assert len(script.asked) == 4


def test_five_requests_are_in_flight_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    in_flight: list[int] = []
    receive = WireConnection.receive

    def observed(connection: WireConnection, answer: type[Message]) -> Message:
        if answer is ProduceResponse:
            in_flight.append(connection.in_flight)
        return receive(connection, answer)

    monkeypatch.setattr(WireConnection, "receive", observed)
    script = ScriptedCluster()
    with script.client() as client:
        sender = sender_of(client)
        sender.send([batch(0, number) for number in range(8)])
        sender.flush()
    assert in_flight == [5, 5, 5, 5, 4, 3, 2, 1]


def test_halves_of_a_batch_go_before_what_comes_behind_it() -> None:
    gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    script = ScriptedCluster(refusals={0: [ErrorCode.MESSAGE_TOO_LARGE, gap, gap]})
    told: list[tuple[TopicPartition, int]] = []
    with script.client() as client:
        find_layout(client.cluster, "orders", 5.0)
        sender = BatchSender(
            client.cluster, SendSettings(), on_split=lambda *split: told.append(split)
        )
        large = batch(0, 0, count=5, size=100)
        sender.send([large, batch(0, 5), batch(0, 6)])
        sender.flush()
    assert script.stored == [(0, 0, 0), (0, 0, 2), (0, 0, 5), (0, 0, 6)]
    assert told == [(orders(0), len(large.data) // 2)]


def test_a_record_that_is_too_large_is_told() -> None:
    script = ScriptedCluster(refusals={0: [ErrorCode.MESSAGE_TOO_LARGE]})
    with script.client() as client:
        sender = sender_of(client)
        sender.send([batch(size=100)])
        with pytest.raises(PublishError, match=r"orders-0: a record of 1\d\d bytes is larger"):
            sender.flush()


def test_a_timeout_tells_the_partition_and_the_last_failure() -> None:
    script = ScriptedCluster(refusals={0: [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000})
    with script.client() as client:
        sender = sender_of(client, SendSettings(delivery_timeout_s=0.2))
        sender.send([batch()])
        with pytest.raises(DeliveryTimeout) as raised:
            sender.flush()
    assert raised.value.partition == orders(0)
    assert (raised.value.timeout_s, raised.value.reason) == (0.2, "NOT_ENOUGH_REPLICAS")
