"""Groups whose coordinator moves to another node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from tests.server.batches import batch, produce, produce_request
from tests.server.coordination.fed_cluster import FedCluster, partition
from tidelog.cluster.metadata.records.topics import PartitionChangeRecord
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.apis.describe_groups import DescribeGroupsRequest
from tidelog.protocol.apis.end_txn import EndTxnRequest
from tidelog.protocol.apis.heartbeat import HeartbeatRequest
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest
from tidelog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.apis.list_groups import ListGroupsRequest
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.apis.offset_fetch import OffsetFetchRequest
from tidelog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.coordination.internal_topics import partition_for
from tidelog.server.node import Node
from tidelog.testing.wire import WireClient

StartCluster = Callable[..., FedCluster]

GROUP = "g"
INDEX = partition_for(GROUP, 2)


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[StartCluster]:
    started: list[FedCluster] = []

    def start(count: int = 2, **options: object) -> FedCluster:
        cluster = FedCluster(tmp_path, count, **options)  # type: ignore[arg-type]
        started.append(cluster)
        cluster.create_topic("t", [1])
        return cluster

    yield start
    for cluster in started:
        cluster.stop()


def join(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def lead_alone(client: WireClient) -> HeartbeatRequest:
    """Become the only member of a stable group; returns its heartbeat."""
    joined = client.call(join(), 3)
    assert joined.error_code == 0, joined
    mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    synced = client.call(
        SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[mine],
        ),
        2,
    )
    assert synced.error_code == 0, synced
    return HeartbeatRequest(
        group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id
    )


def commit(client: WireClient, offset: int, beat: HeartbeatRequest | None = None) -> int:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=GROUP,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
        generation_id_or_member_epoch=-1 if beat is None else beat.generation_id,
        member_id="" if beat is None else beat.member_id,
    )
    code: int = client.call(request, 5).topics[0].partitions[0].error_code
    return code


def fetch(client: WireClient, *, stable: bool = False) -> int:
    """The committed offset, or an error's code below zero."""
    answer = client.call(OffsetFetchRequest(group_id=GROUP, topics=None, require_stable=stable), 7)
    if answer.error_code:
        return -int(answer.error_code)
    return answer.topics[0].partitions[0].committed_offset if answer.topics else -1


def test_a_group_goes_on_where_it_was(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    one, two = cluster.nodes[1].client(), cluster.nodes[2].client()
    beat = lead_alone(one)
    assert commit(one, 5, beat) == 0
    assert two.call(beat, 3).error_code == ErrorCode.NOT_COORDINATOR
    assert two.call(ListGroupsRequest(), 4).groups == []
    for offset, here, away in ((6, two, one), (7, one, two)):
        cluster.move_leader(CONSUMER_OFFSETS_TOPIC, INDEX, 2 if here is two else 1)
        assert away.call(beat, 3).error_code == ErrorCode.NOT_COORDINATOR
        assert commit(away, 99, beat) == ErrorCode.NOT_COORDINATOR
        assert here.call(beat, 3).error_code == 0
        assert fetch(here) == offset - 1
        assert commit(here, offset, beat) == 0
        assert [each.group_id for each in here.call(ListGroupsRequest(), 4).groups] == [GROUP]
        assert away.call(ListGroupsRequest(), 4).groups == []
        (described,) = here.call(DescribeGroupsRequest(groups=[GROUP]), 5).groups
        assert (described.group_state, len(described.members)) == ("Stable", 1)
        (described,) = away.call(DescribeGroupsRequest(groups=[GROUP]), 5).groups
        assert described.error_code == ErrorCode.NOT_COORDINATOR


def test_who_waits_in_a_group_that_moves_is_sent_to_look_for_it(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster()
    one = cluster.nodes[1].client()
    beat = lead_alone(one)
    waiting = cluster.nodes[1].client()
    waiting.send(join(), 3)

    def is_rebalancing() -> bool:
        return bool(one.call(beat, 3).error_code == ErrorCode.REBALANCE_IN_PROGRESS)

    deadline = time.monotonic() + 10
    while not is_rebalancing():
        assert time.monotonic() < deadline
    cluster.move_leader(CONSUMER_OFFSETS_TOPIC, INDEX, 2)
    assert waiting.receive()[1].error_code == ErrorCode.NOT_COORDINATOR
    # Its connection has one answer to one request: the next is that of the next.
    assert waiting.call(beat, 3).error_code == ErrorCode.NOT_COORDINATOR
    two = cluster.nodes[2].client()
    assert two.call(beat, 3).error_code == 0, "the rebalance that was under way has not happened"


def test_a_new_epoch_of_the_same_leader_ends_who_waits_and_loads_again(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster()
    one = cluster.nodes[1].client()
    beat = lead_alone(one)
    assert commit(one, 5, beat) == 0
    waiting = cluster.nodes[1].client()
    waiting.send(join(), 3)
    deadline = time.monotonic() + 10
    while one.call(beat, 3).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
        assert time.monotonic() < deadline
    cluster.set_leader(CONSUMER_OFFSETS_TOPIC, INDEX, 1)
    assert waiting.receive()[1].error_code == ErrorCode.NOT_COORDINATOR
    assert one.call(beat, 3).error_code == 0
    assert fetch(one) == 5


def in_sync(cluster: FedCluster, *isr: int) -> None:
    topic_id = cluster.nodes[1].node.image.topics_by_name[CONSUMER_OFFSETS_TOPIC].topic_id
    cluster.feed(PartitionChangeRecord(partition_id=INDEX, topic_id=topic_id, isr=list(isr)))


def test_nobody_is_told_what_is_not_committed(start_cluster: StartCluster) -> None:
    cluster = start_cluster(settings={"offsets.commit.timeout.ms": "300"})
    one = cluster.nodes[1].client()
    assert commit(one, 5) == 0
    in_sync(cluster, 1, 2)  # and node 2 does not fetch
    assert commit(one, 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fetch(one) == -ErrorCode.NOT_COORDINATOR
    listed = one.call(ListGroupsRequest(), 4)
    assert listed.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    in_sync(cluster, 1)
    assert fetch(one) == 6
    assert [each.group_id for each in one.call(ListGroupsRequest(), 4).groups] == [GROUP]


def test_a_new_leader_tells_what_its_log_ends_with_when_that_is_committed(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(settings={"offsets.commit.timeout.ms": "300"})
    one, two = cluster.nodes[1].client(), cluster.nodes[2].client()
    assert commit(one, 5) == 0
    cluster.set_leader(CONSUMER_OFFSETS_TOPIC, INDEX, -1)
    cluster.copy_log(CONSUMER_OFFSETS_TOPIC, INDEX, 1, 2)
    topic_id = cluster.nodes[1].node.image.topics_by_name[CONSUMER_OFFSETS_TOPIC].topic_id
    lead = PartitionChangeRecord(partition_id=INDEX, topic_id=topic_id, leader=2, isr=[1, 2])
    cluster.feed(lead)
    assert fetch(two) == -ErrorCode.NOT_COORDINATOR
    in_sync(cluster, 2)
    assert fetch(two) == 5


def test_offsets_of_a_topic_that_was_deleted_while_nobody_led_the_partition_go(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster()
    one, two = cluster.nodes[1].client(), cluster.nodes[2].client()
    assert commit(one, 5) == 0
    cluster.set_leader(CONSUMER_OFFSETS_TOPIC, INDEX, -1)
    cluster.copy_log(CONSUMER_OFFSETS_TOPIC, INDEX, 1, 2)
    cluster.delete_topic("t")
    cluster.set_leader(CONSUMER_OFFSETS_TOPIC, INDEX, 2)
    assert fetch(two) == -1
    cluster.create_topic("t", [1])
    assert commit(two, 7) == 0
    cluster.delete_topic("t")
    cluster.create_topic("t", [1])
    assert fetch(two) == -1


def test_a_consumer_and_its_commits_survive_moves(start_cluster: StartCluster) -> None:
    cluster = start_cluster(settings={"group.min.session.timeout.ms": "1000"})
    total = 300
    sender = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
        }
    )
    assignments: list[int] = []
    consumer.subscribe(["t"], on_assign=lambda _, given: assignments.append(len(given)))
    stop = threading.Event()

    def move() -> None:
        for leader in (2, 1, 2):
            if stop.wait(0.7):
                return
            cluster.move_leader(CONSUMER_OFFSETS_TOPIC, INDEX, leader)

    mover = threading.Thread(target=move)
    mover.start()
    seen: list[int] = []
    try:
        deadline = time.monotonic() + 40
        sent = 0
        while len(seen) < total and time.monotonic() < deadline:
            if sent < total:
                sender.produce("t", b"%d" % sent)
                sender.poll(0)
                sent += 1
            message = consumer.poll(0.02)
            if message is None or message.error() is not None:
                continue
            seen.append(int(message.value()))
            # One that fails while the group moves is made up for by the next.
            with suppress(KafkaException):
                consumer.commit(message, asynchronous=False)
        mover.join()
        done = [ClientPartition("t", 0, total)]
        consumer.commit(offsets=done, asynchronous=False)
    finally:
        stop.set()
        mover.join()
        consumer.close()
    assert seen == list(range(total)), "every record once, in order"
    assert assignments == [1], "the member stayed in its group"
    assert fetch(cluster.nodes[2].client()) == total


# Offsets in transactions


class OffsetsInTransaction:
    """A producer that commits offsets of the group in a transaction coordinated by node 2."""

    def __init__(self, cluster: FedCluster) -> None:
        self.client = cluster.nodes[2].client()
        begun = self.client.call(
            InitProducerIdRequest(
                transactional_id="tx",
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            ),
            4,
        )
        assert begun.error_code == 0, begun
        self.producer_id, self.epoch = begun.producer_id, begun.producer_epoch

    def commit(self, client: WireClient, offset: int, version: int) -> int:
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
        )
        code: int = client.call(request, version).topics[0].partitions[0].error_code
        return code

    def add_offsets(self) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id="tx",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=GROUP,
        )
        assert self.client.call(request, 3).error_code == 0

    def end(self, version: int, *, committed: bool = True) -> None:
        request = EndTxnRequest(
            transactional_id="tx",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        ended = self.client.call(request, version)
        assert ended.error_code == 0, ended
        if version >= 5:
            self.producer_id, self.epoch = ended.producer_id, ended.producer_epoch


def stable_offset(client: WireClient, wanted: int) -> int:
    deadline = time.monotonic() + 10
    while (found := fetch(client, stable=True)) != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_offsets_are_committed_in_a_transaction_of_another_node(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(offsets_leaders=(1, 1), transaction_leaders=(2, 2))
    one, two = cluster.nodes[1].client(), cluster.nodes[2].client()
    sender = OffsetsInTransaction(cluster)
    # Nothing was added: the node of the group has asked the coordinator.
    assert sender.commit(one, 1, 4) == ErrorCode.TRANSACTION_ABORTABLE
    assert sender.commit(one, 1, 3) == ErrorCode.INVALID_TXN_STATE
    sender.add_offsets()
    assert sender.commit(one, 5, 3) == 0
    sender.end(3)
    assert stable_offset(one, 5) == 5
    # Whoever does not have the group adds nothing.
    assert sender.commit(two, 6, 5) == ErrorCode.NOT_COORDINATOR
    assert not cluster.on(2, lambda node: open_partitions(node))
    assert sender.commit(one, 6, 5) == 0
    assert cluster.on(2, open_partitions) == [TopicPartition(CONSUMER_OFFSETS_TOPIC, INDEX)]
    sender.end(5, committed=False)
    assert stable_offset(one, 5) == 5
    assert sender.commit(one, 7, 5) == 0
    # The group moves while the transaction is open, and takes what is pending along.
    cluster.move_leader(CONSUMER_OFFSETS_TOPIC, INDEX, 2)
    assert fetch(two, stable=True) != 7
    sender.end(5)
    assert stable_offset(two, 7) == 7


def test_a_marker_that_is_not_committed_shows_no_offset(start_cluster: StartCluster) -> None:
    cluster = start_cluster(
        transaction_leaders=(2, 2), settings={"offsets.commit.timeout.ms": "300"}
    )
    one = cluster.nodes[1].client()
    sender = OffsetsInTransaction(cluster)
    assert sender.commit(one, 5, 5) == 0
    in_sync(cluster, 1, 2)
    before = cluster.on(1, offsets_end)
    sender.end(5)
    cluster.nodes[1].wait_until(lambda node: offsets_end(node) > before)
    assert fetch(one, stable=True) == -ErrorCode.NOT_COORDINATOR
    in_sync(cluster, 1)
    assert stable_offset(one, 5) == 5


def offsets_end(node: Node) -> int:
    return partition(node, CONSUMER_OFFSETS_TOPIC, INDEX).log_end_offset


def open_partitions(node: Node) -> list[TopicPartition]:
    return [
        each
        for _, shard in node.transactions.host.loaded_shards()
        for transaction in shard.transactions.values()
        for each in sorted(transaction.partitions)
    ]


def test_what_was_verified_does_not_outlive_the_transaction(start_cluster: StartCluster) -> None:
    """Of the old flow, in which the epoch stays: a delayed write must not begin a transaction that
    nobody ends."""
    cluster = start_cluster(transaction_leaders=(2, 2))
    sender = OffsetsInTransaction(cluster)
    added = sender.client.call(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=sender.producer_id,
            v3_and_below_producer_epoch=sender.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        3,
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    data = batch(
        b"late",
        producer_id=sender.producer_id,
        producer_epoch=sender.epoch,
        base_sequence=0,
        is_transactional=True,
    )

    def end_before_the_answer(node: Node) -> None:
        """The coordinator's answer is on its way; a marker comes before it."""
        appends = node.transactions.appends
        ask = appends._remote.ask

        def ask_and_end(*args: object, **options: object) -> object:
            answer = ask(*args, **options)  # type: ignore[arg-type]
            appends._remote.ask = ask  # type: ignore[method-assign]
            from tidelog.server.coordination.transaction_markers import write_marker

            write_marker(
                node,
                TopicPartition("t", 0),
                producer_id=sender.producer_id,
                producer_epoch=sender.epoch,
                committed=True,
                coordinator_epoch=0,
                transaction_version=1,
            )
            return answer

        appends._remote.ask = ask_and_end  # type: ignore[assignment, method-assign]

    cluster.on(1, end_before_the_answer)
    one = cluster.nodes[1].client()
    request = produce_request("t", {0: data}, transactional_id="tx")
    (row,) = one.call(request, 9).responses[0].partition_responses
    assert row.error_code == ErrorCode.INVALID_TXN_STATE
    assert cluster.on(1, lambda node: partition(node, "t", 0).log.first_unstable_offset) is None
    assert produce(one, "t", b"plain") == 1
