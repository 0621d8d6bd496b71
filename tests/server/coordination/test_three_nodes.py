"""Coordinators on a real cluster of three nodes, of which some are lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from tests.server.replication.running_cluster import RunningCluster, eventually
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.apis.offset_fetch import OffsetFetchRequest
from tidelog.server.coordination.internal_topics import partition_for

ALL = [1, 2, 3]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    running = RunningCluster(tmp_path)
    yield running
    running.close()


def servers(cluster: RunningCluster) -> str:
    return ",".join(f"127.0.0.1:{each.port}" for each in cluster.nodes.values())


def coordinator(cluster: RunningCluster, key: str, key_type: int, ask: int = 0) -> int:
    """Who coordinates, as the node `ask` says, once somebody does."""
    asked = cluster[ask] if ask else next(iter(cluster.nodes.values()))
    client = asked.client()
    found: list[int] = []

    def find() -> bool:
        answer = client.call(FindCoordinatorRequest(key_type=key_type, key=key), 3)
        if answer.error_code == 0 and answer.node_id in cluster.nodes:
            found.append(answer.node_id)
        return bool(found)

    eventually(find, f"nobody coordinates {key}")
    return found[-1]


def committed(cluster: RunningCluster, topic: str, count: int) -> list[list[bytes]]:
    """The committed records of each partition, up to the last stable offset of now."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers(cluster),
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    values: list[list[bytes]] = []
    try:
        for index in range(count):
            partition = ClientPartition(topic, index, 0)
            _, end = consumer.get_watermark_offsets(partition, timeout=20, cached=False)
            consumer.assign([partition])
            values.append([])
            deadline = time.monotonic() + 20
            while consumer.position([partition])[0].offset < end:
                assert time.monotonic() < deadline, f"{topic}-{index} is not readable up to {end}"
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    values[-1].append(message.value())
                elif message is None and consumer.position([partition])[0].offset >= end - 1:
                    break  # what is left is a marker
    finally:
        consumer.close()
    return values


def test_any_node_has_the_internal_topics_made_with_three_replicas(
    cluster: RunningCluster,
) -> None:
    for key_type, topic in ((0, CONSUMER_OFFSETS_TOPIC), (1, TRANSACTION_STATE_TOPIC)):
        answers = {node_id: coordinator(cluster, "k", key_type, node_id) for node_id in ALL}
        assert len(set(answers.values())) == 1, answers
        for index in range(2):
            assert sorted(cluster.image(1, topic, index).replicas) == ALL
    assert (
        cluster[2].node.image.topic_configs(TRANSACTION_STATE_TOPIC)["min.insync.replicas"] == "2"
    )


def test_no_two_producers_have_the_same_id(cluster: RunningCluster) -> None:
    given = []
    for node_id in ALL:
        client = cluster[node_id].client()
        for _ in range(3):
            begun = client.call(InitProducerIdRequest(producer_id=-1, producer_epoch=-1), 4)
            assert begun.error_code == 0, begun
            given.append(begun.producer_id)
    assert len(set(given)) == len(given)


@pytest.mark.parametrize("lost", ["coordinator", "leader"])
def test_transactions_survive_the_loss_of_a_node(cluster: RunningCluster, lost: str) -> None:
    cluster.create_topic("orders", [[1, 2, 3], [2, 3, 1], [3, 1, 2]], min_insync_replicas="2")
    of = coordinator(cluster, "copier", 1)
    victim = of if lost == "coordinator" else next(each for each in ALL if each != of)
    sender = Producer(
        {
            "bootstrap.servers": servers(cluster),
            "transactional.id": "copier",
            "transaction.timeout.ms": 20_000,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "socket.timeout.ms": 3000,
        }
    )
    sender.init_transactions(20)
    total = 12
    aborted = 0
    for number in range(total):
        if number == 5:
            sender.begin_transaction()
            for index in range(3):
                sender.produce("orders", b"%d" % number, partition=index)
            sender.poll(0)
            cluster.kill(victim)
            aborted += not _commit(sender)
            if not aborted:
                continue
        while True:
            sender.begin_transaction()
            for index in range(3):
                sender.produce("orders", b"%d" % number, partition=index)
            if _commit(sender):
                break
            aborted += 1
            assert aborted < 10
    wanted = Counter(b"%d" % number for number in range(total))
    for values in committed(cluster, "orders", 3):
        assert Counter(values) == wanted, "every step once, in all partitions"


def _commit(sender: Producer) -> bool:
    """False when the transaction had to be rolled back."""
    deadline = time.monotonic() + 40
    while True:
        try:
            sender.commit_transaction(10)
        except KafkaException as error:
            cause = error.args[0]
            if cause.txn_requires_abort():
                _abort(sender, deadline)
                return False
            if not cause.retriable() or time.monotonic() >= deadline:
                raise
        else:
            return True


def _abort(sender: Producer, deadline: float) -> None:
    while True:
        try:
            sender.abort_transaction(10)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() >= deadline:
                raise
        else:
            return


def test_a_group_survives_the_loss_of_its_coordinator(cluster: RunningCluster) -> None:
    cluster.create_topic("t", [ALL])
    sender = Producer({"bootstrap.servers": servers(cluster)})
    total = 60
    for number in range(total):
        sender.produce("t", b"%d" % number)
    assert sender.flush(20) == 0
    victim = coordinator(cluster, "g", 0)
    consumer = Consumer(
        {
            "bootstrap.servers": servers(cluster),
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
        }
    )
    assignments: list[int] = []
    consumer.subscribe(["t"], on_assign=lambda _, given: assignments.append(len(given)))
    seen: list[int] = []
    deadline = time.monotonic() + 60
    try:
        while len(seen) < total:
            assert time.monotonic() < deadline, f"{len(seen)} of {total}"
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            seen.append(int(message.value()))
            if len(seen) == 20:
                consumer.commit(message, asynchronous=False)
                cluster.kill(victim)
        done = [ClientPartition("t", 0, total)]
        while True:
            try:
                consumer.commit(offsets=done, asynchronous=False)
                break
            except KafkaException:
                assert time.monotonic() < deadline
        assert consumer.committed(done, timeout=20)[0].offset == total
    finally:
        consumer.close()
    assert seen == list(range(total)), "every record once, in order"
    assert assignments == [1], "the member stayed in its group"
    assert coordinator(cluster, "g", 0) != victim


def test_a_topic_made_and_deleted_by_any_node_takes_its_offsets_along(
    cluster: RunningCluster,
) -> None:
    group = "g"
    here = coordinator(cluster, group, 0)
    other = next(each for each in ALL if each != here)
    asking = MetadataRequest(
        topics=[MetadataRequestTopic(name="made")], allow_auto_topic_creation=True
    )
    client = cluster[other].client()
    eventually(lambda: client.call(asking, 12).topics[0].error_code == 0, "it is not created")
    eventually(lambda: "made" in cluster[here].node.image.topics_by_name)
    at = cluster[here].client()
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    commit = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="made", partitions=[row])]
    )
    eventually(lambda: at.call(commit, 5).topics[0].partitions[0].error_code == 0)
    fetch = OffsetFetchRequest(group_id=group, topics=None)
    assert at.call(fetch, 5).topics[0].partitions[0].committed_offset == 5
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="made")], timeout_ms=10_000)
    assert client.call(delete, 6).responses[0].error_code == 0
    eventually(lambda: at.call(fetch, 5).topics == [], "its offsets stay")
    # Gone from the log too: whoever loads it next does not find them.
    index = partition_for(group, 2)
    cluster.kill(here)
    heir = coordinator(cluster, group, 0)
    assert cluster.image(heir, CONSUMER_OFFSETS_TOPIC, index).leader == heir
    again = cluster[heir].client()
    eventually(lambda: again.call(fetch, 5).error_code == 0)
    assert again.call(fetch, 5).topics == []
