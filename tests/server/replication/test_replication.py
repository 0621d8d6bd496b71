"""Records on several nodes: copied, committed, kept when nodes fail, and the same everywhere."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.server.batches import batch, fetch_request, produce, produce_request, rows, values
from tests.server.replication.running_cluster import LAG_MS, RunningCluster, eventually
from tidelog.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import WireClient


def send(
    client: WireClient, topic: str, *data: bytes, acks: int = -1, timeout_ms: int = 10_000
) -> ErrorCode:
    """Append one batch; the code of its row."""
    request = produce_request(topic, {0: batch(*data)}, acks=acks, timeout_ms=timeout_ms)
    (row,) = client.call(request, 9).responses[0].partition_responses
    return ErrorCode(row.error_code)


def test_records_are_copied_and_committed(cluster: RunningCluster) -> None:
    cluster.create_topic("orders", [[1, 2, 3]])
    with cluster[1].client() as client:
        for number in range(20):
            assert produce(client, "orders", b"%d" % number) == number
        leader = cluster.partition(1, "orders")
        assert leader.high_watermark == 20, "acks=all waits for all"
        for node_id in (2, 3):
            follower = cluster.partition(node_id, "orders")
            assert follower.log.durable_offset == 20, "and for their disks"
            eventually(lambda follower=follower: follower.high_watermark == 20)  # type: ignore[misc]
    assert cluster.wait_for_same_logs("orders", (1, 2, 3)) != b""
    assert cluster.image(1, "orders").isr == (1, 2, 3)


def test_a_follower_that_stands_still_leaves_the_in_sync_set_and_comes_back(
    cluster: RunningCluster,
) -> None:
    cluster.create_topic("orders", [[1, 2, 3]])
    with cluster[1].client() as client:
        produce(client, "orders", b"before")
        follower = 3 if cluster[1].node.metadata.leader_id != 3 else 2
        cluster.pause(follower)
        begun = time.monotonic()
        assert send(client, "orders", b"meanwhile", timeout_ms=20_000) is ErrorCode.NONE
        assert time.monotonic() - begun < 15
        cluster.wait_for_isr("orders", {1, 2, 3} - {follower})
        assert send(client, "orders", b"without it") is ErrorCode.NONE
        cluster.resume(follower)
        cluster.wait_for_isr("orders", {1, 2, 3})
    cluster.wait_for_same_logs("orders", (1, 2, 3))


def test_idle_followers_stay_in_sync(cluster: RunningCluster) -> None:
    """Their fetches name no partition for longer than the lag that is allowed."""
    cluster.create_topic("orders", [[1, 2, 3]])
    with cluster[1].client() as client:
        produce(client, "orders", b"a")
        time.sleep(3 * LAG_MS / 1000)
        produce(client, "orders", b"b")
        time.sleep(LAG_MS / 1000)
    assert cluster.image(1, "orders").partition_epoch == 0, "the in-sync set has never changed"


def test_a_leader_that_dies_is_replaced_and_what_only_it_had_is_cut_off(
    cluster: RunningCluster,
) -> None:
    topic_id = cluster.create_topic("orders", [[1, 2, 3]])
    with cluster[1].client() as client:
        produce(client, "orders", b"committed")
        for node_id in (2, 3):
            # The next records of the leader do not get there.
            follower, node = cluster.partition(node_id, "orders"), cluster[node_id].node
            cluster[node_id].call(
                lambda node=node, follower=follower: node.followed_partitions.unfollow(follower)  # type: ignore[misc]
            )
        time.sleep(0.15)  # fetches that were under way
        assert send(client, "orders", b"only here", acks=1) is ErrorCode.NONE
    assert cluster.partition(1, "orders").high_watermark == 1
    cluster.kill(1)
    leader_id = cluster.wait_for_leader("orders", {2, 3})
    with cluster[leader_id].client() as client:
        assert send(client, "orders", b"of the next leader") is ErrorCode.NONE
        cluster.restart(1)
        cluster.wait_for_same_logs("orders", (1, 2, 3))
        cluster.wait_for_isr("orders", {1, 2, 3})
        response = client.call(fetch_request(topic_id, {0: 0}), 16)
        assert values(rows(response)[0]) == [b"committed", b"of the next leader"]


def test_too_few_replicas_refuse_acks_all_and_nothing_else(cluster: RunningCluster) -> None:
    cluster.create_topic("orders", [[1, 2]], min_insync_replicas="2")
    with cluster[1].client() as client:
        assert send(client, "orders", b"a") is ErrorCode.NONE
        cluster.kill(2)
        cluster.wait_for_isr("orders", {1})
        assert send(client, "orders", b"b") is ErrorCode.NOT_ENOUGH_REPLICAS
        assert send(client, "orders", b"c", acks=1) is ErrorCode.NONE
        assert cluster.partition(1, "orders").high_watermark == 1, "it is frozen"
        cluster.restart(2)
        cluster.wait_for_isr("orders", {1, 2})
        assert send(client, "orders", b"d") is ErrorCode.NONE
    cluster.wait_for_same_logs("orders", (1, 2))


def test_a_node_that_does_not_lead_says_who_does(cluster: RunningCluster) -> None:
    topic_id = cluster.create_topic("orders", [[1, 2]])
    for node_id in (2, 3):
        with cluster[node_id].client() as client:
            response = client.call(produce_request("orders", {0: batch(b"a")}), 12)
            (row,) = response.responses[0].partition_responses
            assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (1, 0)
            (endpoint,) = response.node_endpoints
            assert (endpoint.node_id, endpoint.port) == (1, cluster[1].port)
    with cluster[3].client() as client:
        response = client.call(fetch_request(topic_id, {0: 0}), 16)
        row = rows(response)[0]
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert row.current_leader.leader_id == 1
        assert [each.port for each in response.node_endpoints] == [cluster[1].port]


@pytest.mark.parametrize(
    "cluster", [{"replica.selector.class": "RackAwareReplicaSelector"}], indirect=True
)
def test_a_consumer_reads_from_a_follower_in_its_rack(cluster: RunningCluster) -> None:
    topic_id = cluster.create_topic("orders", [[1, 2]])

    def fetch(node_id: int, offset: int, rack: str) -> Any:
        request = fetch_request(topic_id, {0: offset}, rack_id=rack)
        with cluster[node_id].client() as client:
            return rows(client.call(request, 16))[0]

    with cluster[1].client() as client:
        produce(client, "orders", b"a")
        row = fetch(1, 0, "rack-2")
        assert (row.preferred_read_replica, row.records or b"") == (2, b"")
        for rack in ("rack-1", "rack-3", ""):
            row = fetch(1, 0, rack)
            assert row.preferred_read_replica == -1
            assert values(row) == [b"a"]
        eventually(lambda: cluster.partition(2, "orders").high_watermark == 1)
        assert values(fetch(2, 0, "rack-2")) == [b"a"]
        # What the follower has not got yet the leader may have: it is not out of range here.
        assert fetch(2, 9, "rack-2").error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert fetch(1, 9, "rack-2").error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        # A long poll at the follower hears what is committed.
        with cluster[2].client() as consumer:
            consumer.send(fetch_request(topic_id, {0: 1}, rack_id="rack-2", max_wait_ms=20_000), 16)
            produce(client, "orders", b"b")
            _, answer = consumer.receive()
            assert values(rows(answer)[0]) == [b"b"]


def test_records_are_deleted_on_all_replicas_before_the_answer(cluster: RunningCluster) -> None:
    cluster.create_topic("orders", [[1, 2, 3]])

    def delete(offset: int, timeout_ms: int = 20_000) -> tuple[int, int]:
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="orders", partitions=[asked])], timeout_ms=timeout_ms
        )
        with cluster[1].client() as client:
            (row,) = client.call(request, 2).topics[0].partitions
        return row.error_code, row.low_watermark

    with cluster[1].client() as client:
        produce(client, "orders", b"a", b"b", b"c")
    assert delete(2) == (0, 2)
    assert cluster.partition(2, "orders").log_start_offset == 2
    assert cluster.partition(3, "orders").log_start_offset == 2
    follower, node = cluster.partition(3, "orders"), cluster[3].node
    cluster[3].call(lambda: node.followed_partitions.unfollow(follower))
    assert delete(3, timeout_ms=300) == (ErrorCode.REQUEST_TIMED_OUT, 2)


def test_partitions_move_between_fetchers_with_their_leaders(cluster: RunningCluster) -> None:
    cluster.create_topic("orders", [[1, 2, 3], [2, 3, 1]])
    for number in range(2):
        with cluster[number + 1].client() as client:
            produce(client, "orders", b"a", partition=number)
    assert set(cluster[3].node.followed_partitions.fetchers) >= {1, 2}
    cluster.kill(2)
    cluster.wait_for_leader("orders", {1, 3}, 1)
    eventually(lambda: 2 not in cluster[3].node.followed_partitions.fetchers)
    eventually(lambda: 2 not in cluster[1].node.followed_partitions.fetchers)


def test_a_node_that_comes_back_is_in_sync_with_partitions_that_are_idle(
    cluster: RunningCluster,
) -> None:
    """It fetches them once, perhaps before the controller would take it into the in-sync sets."""
    partitions = 20
    cluster.create_topic("orders", [[1 + n % 2, 2 - n % 2, 3] for n in range(partitions)])
    cluster.kill(3)
    cluster.wait_for_isr("orders", {1, 2})
    cluster.restart(3)
    for index in range(partitions):
        cluster.wait_for_isr("orders", {1, 2, 3}, index)
