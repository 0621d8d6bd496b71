"""Coordinators whose partitions are led by several nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from tests.server.batches import batch, produce_request
from tests.server.coordination.fed_cluster import FedCluster, partition
from tidelog.cluster.metadata.records.topics import PartitionChangeRecord
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.protocol.apis.describe_transactions import DescribeTransactionsRequest
from tidelog.protocol.apis.end_txn import EndTxnRequest
from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest
from tidelog.protocol.apis.list_transactions import ListTransactionsRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.server.coordination.internal_topics import partition_for
from tidelog.server.node import Node
from tidelog.testing.wire import WireClient

StartCluster = Callable[..., FedCluster]


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[StartCluster]:
    started: list[FedCluster] = []

    def start(count: int = 2, **options: object) -> FedCluster:
        cluster = FedCluster(tmp_path, count, **options)  # type: ignore[arg-type]
        started.append(cluster)
        return cluster

    yield start
    for cluster in started:
        cluster.stop()


def committed(cluster: FedCluster, topic: str, count: int, wanted: int) -> list[bytes]:
    """The values of committed records in all partitions, once there are so many."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([ClientPartition(topic, index, 0) for index in range(count)])
    values: list[bytes] = []
    deadline = time.monotonic() + 20
    # A moment longer than it takes, for what must not come.
    while time.monotonic() < deadline and len(values) < wanted + 1:
        message = consumer.poll(0.3)
        if message is None and len(values) >= wanted:
            break
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return sorted(values)


def producer(cluster: FedCluster, transactional_id: str) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": transactional_id,
            "retry.backoff.ms": "20",
        }
    )
    made.init_transactions(20)
    return made


def is_stable(node: Node, topic: str, index: int) -> bool:
    return not unstable(node, topic, index)


def unstable(node: Node, topic: str, index: int) -> bool:
    """Whether a transaction is open in a partition."""
    return partition(node, topic, index).log.first_unstable_offset is not None


def test_a_transaction_over_partitions_of_several_nodes_commits_and_aborts(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(3, transaction_leaders=(2, 2))
    cluster.create_topic("orders", [1, 2, 3])
    sender = producer(cluster, "copier")
    for round in range(3):
        sender.begin_transaction()
        for index in range(3):
            sender.produce("orders", f"lost-{round}-{index}".encode(), partition=index)
        sender.flush(20)
        sender.abort_transaction(20)
        sender.begin_transaction()
        for index in range(3):
            sender.produce("orders", f"kept-{round}-{index}".encode(), partition=index)
        sender.commit_transaction(20)
    wanted = sorted(f"kept-{round}-{index}".encode() for round in range(3) for index in range(3))
    assert committed(cluster, "orders", 3, len(wanted)) == wanted
    for index in range(3):
        cluster.nodes[index + 1].wait_until(partial(is_stable, topic="orders", index=index))
    assert cluster.on(2, lambda node: node.transactions.markers.count) == 0


def test_markers_find_the_leader_that_took_over(start_cluster: StartCluster) -> None:
    cluster = start_cluster(3)
    cluster.create_topic("orders", [2])
    sender = producer(cluster, "mover")
    sender.begin_transaction()
    sender.produce("orders", b"kept", partition=0)
    sender.flush(20)
    cluster.set_leader("orders", 0, -1)
    sender.commit_transaction(20)  # decided; the marker waits
    assert cluster.on(1, lambda node: node.transactions.markers.count) == 1
    cluster.copy_log("orders", 0, 2, 3)
    cluster.set_leader("orders", 0, 3)
    cluster.nodes[1].wait_until(lambda node: node.transactions.markers.count == 0)
    assert not cluster.on(3, lambda node: unstable(node, "orders", 0))
    assert committed(cluster, "orders", 1, 1) == [b"kept"]


def test_markers_go_on_when_the_partition_comes_to_the_coordinator_itself(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(2)
    cluster.create_topic("orders", [2])
    sender = producer(cluster, "mover")
    sender.begin_transaction()
    sender.produce("orders", b"kept", partition=0)
    sender.flush(20)
    cluster.set_leader("orders", 0, -1)
    sender.commit_transaction(20)
    cluster.copy_log("orders", 0, 2, 1)
    cluster.set_leader("orders", 0, 1)
    cluster.nodes[1].wait_until(lambda node: node.transactions.markers.count == 0)
    assert committed(cluster, "orders", 1, 1) == [b"kept"]


def test_markers_of_a_deleted_topic_are_dropped(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2)
    cluster.create_topic("orders", [2])
    cluster.create_topic("others", [2])
    sender = producer(cluster, "mover")
    sender.begin_transaction()
    sender.produce("orders", b"x", partition=0)
    sender.produce("others", b"kept", partition=0)
    sender.flush(20)
    cluster.set_leader("orders", 0, -1)
    sender.commit_transaction(20)
    cluster.delete_topic("orders")
    cluster.nodes[1].wait_until(lambda node: node.transactions.markers.count == 0)
    assert committed(cluster, "others", 1, 1) == [b"kept"]


def test_a_coordinator_that_takes_over_writes_the_markers_of_the_one_before(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(3)
    cluster.create_topic("orders", [2])
    sender = producer(cluster, "heir")
    sender.begin_transaction()
    sender.produce("orders", b"kept", partition=0)
    sender.flush(20)
    cluster.set_leader("orders", 0, -1)
    sender.commit_transaction(20)
    index = partition_for("heir", 2)
    cluster.move_leader(TRANSACTION_STATE_TOPIC, index, 3)
    assert cluster.on(1, lambda node: node.transactions.markers.count) == 0
    cluster.nodes[3].wait_until(lambda node: node.transactions.markers.count == 1)
    cluster.set_leader("orders", 0, 2)
    cluster.nodes[3].wait_until(lambda node: node.transactions.markers.count == 0)
    assert committed(cluster, "orders", 1, 1) == [b"kept"]
    # The epoch of the coordinator is in the marker: the one before is fenced by it.
    epoch = cluster.on(2, lambda node: _coordinator_epoch(node, "orders", 0))
    assert epoch == cluster.image_of(TRANSACTION_STATE_TOPIC, index).leader_epoch
    sender.begin_transaction()
    sender.produce("orders", b"next", partition=0)
    sender.commit_transaction(20)
    assert committed(cluster, "orders", 1, 2) == [b"kept", b"next"]


def _coordinator_epoch(node: Node, topic: str, index: int) -> int:
    (producer,) = partition(node, topic, index).log.producers.producers.values()
    return producer.coordinator_epoch


# Transactions v2, on the wire


class V2Producer:
    """A transactional producer that adds partitions by writing to them."""

    def __init__(self, cluster: FedCluster, transactional_id: str, coordinator: int) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.coordinator = cluster.nodes[coordinator].client()
        self.clients: dict[int, WireClient] = {}
        self.sequences: dict[tuple[str, int], int] = {}
        begun = self.coordinator.call(
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            ),
            5,
        )
        assert begun.error_code == 0, begun
        self.producer_id, self.epoch = begun.producer_id, begun.producer_epoch

    def produce(
        self, node_id: int, topic: str, index: int, *values: bytes, version: int = 12
    ) -> int:
        client = self.clients.setdefault(node_id, self.cluster.nodes[node_id].client())
        sequence = self.sequences.get((topic, index), 0)
        data = batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_request(topic, {index: data}, transactional_id=self.transactional_id)
        (row,) = client.call(request, version).responses[0].partition_responses
        if row.error_code == 0:
            self.sequences[topic, index] = sequence + len(values)
        code: int = row.error_code
        return code

    def end(self, committed: bool) -> None:
        ended = self.coordinator.call(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=committed,
            ),
            5,
        )
        assert ended.error_code == 0, ended
        self.producer_id, self.epoch = ended.producer_id, ended.producer_epoch
        self.sequences.clear()


def test_a_producer_of_v2_adds_partitions_of_other_nodes_by_writing(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(3)
    cluster.create_topic("orders", [1, 2, 3])
    sender = V2Producer(cluster, "v2", 1)
    for round in range(5):
        for index in range(3):
            # The transaction before may not be over yet: its node asks again until it is.
            assert sender.produce(index + 1, "orders", index, b"%d" % round) == 0
        assert sorted(cluster.on(1, lambda node: _partitions(node, "v2"))) == [0, 1, 2]
        sender.end(round % 2 == 0)
    assert committed(cluster, "orders", 3, 9) == sorted([b"0", b"2", b"4"] * 3)


def _partitions(node: Node, transactional_id: str) -> list[int]:
    for _, shard in node.transactions.host.loaded_shards():
        if transactional_id in shard.transactions:
            return [each.partition for each in shard.transactions[transactional_id].partitions]
    raise AssertionError("no such transaction")


def test_a_write_that_the_transaction_does_not_have_is_refused_by_the_node_that_asks(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(2)
    cluster.create_topic("orders", [2])
    sender = V2Producer(cluster, "old", 1)
    assert sender.produce(2, "orders", 0, b"x", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert sender.produce(2, "orders", 0, b"x", version=9) == ErrorCode.INVALID_TXN_STATE
    assert not cluster.on(2, lambda node: unstable(node, "orders", 0))
    sender.epoch += 1
    assert sender.produce(2, "orders", 0, b"x", version=9) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_write_whose_coordinator_cannot_be_asked_is_to_be_retried(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(2)
    cluster.create_topic("orders", [2])
    sender = V2Producer(cluster, "alone", 1)
    for index in range(2):
        cluster.set_leader(TRANSACTION_STATE_TOPIC, index, -1)
    for version in (9, 12):
        code = sender.produce(2, "orders", 0, b"x", version=version)
        assert code == ErrorCode.NOT_ENOUGH_REPLICAS
    for index in range(2):
        cluster.set_leader(TRANSACTION_STATE_TOPIC, index, 1)
    assert sender.produce(2, "orders", 0, b"x") == 0


def test_a_write_that_waits_for_a_coordinator_that_is_gone_is_told_when_it_is_fenced(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(2)
    cluster.create_topic("orders", [2])
    sender = V2Producer(cluster, "waits", 1)
    lost = cluster.nodes.pop(1)
    lost.stop()
    client = cluster.nodes[2].client()
    data = batch(
        b"x",
        producer_id=sender.producer_id,
        producer_epoch=sender.epoch,
        base_sequence=0,
        is_transactional=True,
    )
    began = time.monotonic()
    client.send(produce_request("orders", {0: data}, transactional_id="waits"), 12)
    cluster.nodes[2].wait_until(lambda node: bool(node.transactions.appends._asking))
    cluster.fence(1)
    (row,) = client.receive()[1].responses[0].partition_responses
    assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert time.monotonic() - began < 5


def test_a_producer_is_not_fenced_by_what_is_not_committed(start_cluster: StartCluster) -> None:
    cluster = start_cluster(settings={"offsets.commit.timeout.ms": "300"})
    cluster.create_topic("orders", [1])
    sender = V2Producer(cluster, "fenced", 1)
    topic_id = cluster.nodes[1].node.image.topics_by_name[TRANSACTION_STATE_TOPIC].topic_id
    change = PartitionChangeRecord(partition_id=partition_for("fenced", 2), topic_id=topic_id)
    change.isr = [1, 2]  # and node 2 does not fetch
    cluster.feed(change)
    begin_anew = InitProducerIdRequest(
        transactional_id="fenced",
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    anew = sender.coordinator.call(begin_anew, 5)
    assert anew.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert sender.produce(1, "orders", 0, b"x") == ErrorCode.NOT_ENOUGH_REPLICAS
    describe = DescribeTransactionsRequest(transactional_ids=["fenced"])
    (described,) = sender.coordinator.call(describe, 0).transaction_states
    assert described.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    change.isr = [1]
    cluster.feed(change)
    assert sender.produce(1, "orders", 0, b"x") == ErrorCode.INVALID_PRODUCER_EPOCH
    (described,) = sender.coordinator.call(describe, 0).transaction_states
    assert (described.error_code, described.producer_epoch) == (0, 1)


def test_a_node_lists_what_it_coordinates(start_cluster: StartCluster) -> None:
    cluster = start_cluster(transaction_leaders=(1, 2))
    names = {1: _key_of(0), 2: _key_of(1)}
    for node_id, name in names.items():
        V2Producer(cluster, name, node_id)
    for node_id, name in names.items():
        client = cluster.nodes[node_id].client()
        listed = client.call(ListTransactionsRequest(), 2).transaction_states
        assert [each.transactional_id for each in listed] == [name]
        describe = DescribeTransactionsRequest(transactional_ids=sorted(names.values()))
        codes = {
            each.transactional_id: each.error_code
            for each in client.call(describe, 0).transaction_states
        }
        other = names[3 - node_id]
        assert codes == {name: 0, other: ErrorCode.NOT_COORDINATOR}


# Finding


def test_any_node_tells_who_coordinates(start_cluster: StartCluster) -> None:
    cluster = start_cluster(3, offsets_leaders=(2, 3), transaction_leaders=(3, 1))
    for running in cluster.nodes.values():
        client = running.client()
        for key_type, leaders in ((0, (2, 3)), (1, (3, 1))):
            keys = [f"k{number}" for number in range(6)]
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
            rows = client.call(request, 6).coordinators
            assert [row.node_id for row in rows] == [leaders[partition_for(k, 2)] for k in keys]
            assert [row.port for row in rows] == [cluster.nodes[row.node_id].port for row in rows]
            one = client.call(FindCoordinatorRequest(key_type=key_type, key="k1"), 3)
            assert one.node_id == leaders[partition_for("k1", 2)]
    cluster.set_leader(CONSUMER_OFFSETS_TOPIC, partition_for("k1", 2), -1)
    client = cluster.nodes[1].client()
    nobody = client.call(FindCoordinatorRequest(key="k1"), 3)
    assert nobody.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.fence(3)
    fenced = client.call(FindCoordinatorRequest(key_type=1, key=_key_of(0)), 3)
    assert fenced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def _key_of(index: int) -> str:
    return next(key for key in map(str, range(100)) if partition_for(key, 2) == index)
