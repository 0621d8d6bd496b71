"""Fetches of followers: what they tell the leader, and what they do not."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.server.batches import batch, fetch_request, produce, produce_request, rows
from tests.server.running_node import RunningNode
from tidelog.cluster.replication.partition import Partition
from tidelog.protocol.apis.fetch import FetchRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.world.operating_system.network import SocketTransport

VERSION = 12  # by topic name, with epochs
FOLLOWER = 2


@pytest.fixture
def partition(served: RunningNode) -> Partition:
    """One with a follower in sync, and two records that only the leader has."""
    served.create_topic("followed")
    with served.client() as client:
        assert produce(client, "followed", b"a", b"b") == 0
    partition = served.call(lambda: served.node.partitions.get("followed", 0))
    assert partition is not None

    def gets_a_follower() -> None:
        topic = served.node.image.topics_by_name["followed"]
        image = topic.partitions[0]._replace(replicas=(1, FOLLOWER), isr=(1, FOLLOWER))
        partition.lead(image._replace(leader_epoch=5, partition_epoch=5), served.node.now_ms())

    served.call(gets_a_follower)
    return partition


def fetch(
    offset: int, *, leader_epoch: int = 5, fetched_epoch: int = -1, max_wait_ms: int = 0
) -> FetchRequest:
    request = fetch_request("followed", {0: offset}, replica_id=FOLLOWER, max_wait_ms=max_wait_ms)
    row = request.topics[0].partitions[0]
    row.current_leader_epoch, row.last_fetched_epoch = leader_epoch, fetched_epoch
    return request


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


def test_a_fetch_that_is_refused_says_nothing_about_the_follower(
    served: RunningNode, partition: Partition
) -> None:
    with served.client() as client:
        assert produce_without_answer(served, b"c") == 3
        before = partition.high_watermark
        for request, code in (
            (fetch(3, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
            (fetch(3, leader_epoch=6), ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            (row,) = rows(client.call(request, VERSION)).values()
            assert row.error_code == code
        (row,) = rows(client.call(fetch(9, fetched_epoch=4), VERSION)).values()
        assert row.diverging_epoch.end_offset >= 0
        assert partition.high_watermark == before == 2
        (row,) = rows(client.call(fetch(3), VERSION)).values()
        assert (row.error_code, row.high_watermark) == (0, 3)
        assert partition.high_watermark == 3


def test_a_node_that_is_no_replica_is_told_to_try_again(
    served: RunningNode, partition: Partition
) -> None:
    """With the right epoch it may be one that the leader has not heard of yet."""
    with served.client() as client:
        for leader_epoch, code in (
            (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ):
            request = fetch(2, leader_epoch=leader_epoch)
            request.replica_id = 9
            (row,) = rows(client.call(request, VERSION)).values()
            assert row.error_code == code


def test_a_write_is_not_acknowledged_when_the_in_sync_set_has_become_too_small(
    served: RunningNode,
) -> None:
    served.create_topic("safe", min_insync_replicas="2")
    partition = served.call(lambda: served.node.partitions.get("safe", 0))
    assert partition is not None
    image = served.node.image.topics_by_name["safe"].partitions[0]
    two = image._replace(replicas=(1, FOLLOWER), isr=(1, FOLLOWER), leader_epoch=5)
    served.call(lambda: partition.lead(two._replace(partition_epoch=5), 0))

    def follower_gets_it_and_leaves() -> None:
        partition.record_follower_fetch(FOLLOWER, 1, 0, 0)
        assert partition.high_watermark == 1
        partition.lead(two._replace(isr=(1,), partition_epoch=6), 0)

    with served.client() as client:
        client.send(produce_request("safe", {0: batch(b"a")}), 9)
        wait_until(lambda: partition.log.durable_offset == 1)
        served.call(follower_gets_it_and_leaves)
        (row,) = client.receive()[1].responses[0].partition_responses
        assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        (row,) = (
            client.call(produce_request("safe", {0: batch(b"b")}), 9)
            .responses[0]
            .partition_responses
        )
        assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_long_poll_of_a_follower_is_woken_by_an_append(
    served: RunningNode, partition: Partition
) -> None:
    with served.client() as client:
        client.call(fetch(2), VERSION)
        client.send(fetch(2, max_wait_ms=20_000), VERSION)
        wait_until(lambda: served.node.metrics.delayed_fetches == 1)
        begun = time.monotonic()
        produce_without_answer(served, b"c")
        _, answer = client.receive()
        (row,) = rows(answer).values()
        assert len(row.records) > 0
        assert row.high_watermark == 2  # not committed, and a follower gets it all the same
        assert time.monotonic() - begun < 15


def produce_without_answer(served: RunningNode, value: bytes) -> int:
    """Append with acks=1, which waits for no follower; returns the log's end."""
    with served.client() as client:
        request = produce_request("followed", {0: batch(value)}, acks=1)
        (row,) = client.call(request, 9).responses[0].partition_responses
        assert row.error_code == 0
        return int(row.base_offset) + 1


def test_a_replica_starts_with_the_high_watermark_that_was_checkpointed(
    served: RunningNode, partition: Partition
) -> None:
    assert produce_without_answer(served, b"c") == 3
    assert partition.high_watermark == 2  # the follower has not asked for more
    served.stop()
    again = RunningNode(served.data)
    try:
        assert again.call(lambda: follow_from_the_start(again)) == (2, 3)
    finally:
        again.stop()


def follow_from_the_start(again: RunningNode) -> tuple[int, int]:
    """The high watermark and the end of the log, as they are when another node leads."""
    node = again.node
    topic = node.image.topics_by_name["followed"]
    alone = node.partitions.remove("followed", 0)
    assert alone is not None
    image = topic.partitions[0]._replace(leader=FOLLOWER, leader_epoch=6, partition_epoch=6)
    node.local_partitions._apply_partition(topic, image, alone.log.config)
    partition = node.partitions.get("followed", 0)
    assert partition is not None
    return partition.high_watermark, partition.log_end_offset


def test_a_session_of_a_follower_makes_room_to_send_and_one_of_a_consumer_does_not(
    served: RunningNode, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    make_send_room = SocketTransport.make_send_room

    def make_and_tell(transport: SocketTransport, size_bytes: int, /) -> None:
        make_send_room(transport, size_bytes)
        made.append(size_bytes)

    monkeypatch.setattr(SocketTransport, "make_send_room", make_and_tell)
    with served.client() as client:
        consumer = fetch_request("followed", {0: 0}, max_wait_ms=0)
        follower = fetch(0)
        for request in (consumer, follower):
            request.session_id, request.session_epoch = 0, 0
        client.call(consumer, VERSION)
        assert made == []
        response = client.call(follower, VERSION)
        assert made == [384 * 1024]
        # The fetches that follow have it already.
        follower.session_id, follower.session_epoch = response.session_id, 1
        client.call(follower, VERSION)
        assert made == [384 * 1024]
