"""Fetch on the wire: versions, limits, long polls, sessions, errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.server.batches import batch, fetch_request, produce, produce_request, rows, values
from tests.server.running_node import RunningNode
from tidelog.protocol.apis.fetch import FetchPartition, FetchTopic
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.record_batch import iterate_headers

_LONG_MS = 30_000


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


def test_every_version_reads_the_same(shared_node: RunningNode) -> None:
    topic_id = shared_node.create_topic("every-version", 2)
    with shared_node.client() as client:
        produce(client, "every-version", b"a", b"b")
        produce(client, "every-version", b"c")
        for version in range(4, 19):
            topic = "every-version" if version < 13 else topic_id
            found = rows(client.call(fetch_request(topic, {0: 0, 1: 0}), version))
            assert values(found[0]) == [b"a", b"b", b"c"]
            assert (found[0].high_watermark, found[0].last_stable_offset) == (3, 3)
            assert values(found[1]) == []
            # No records have a length of 0, they are never null.
            assert found[1].records is not None
            assert len(found[1].records) == 0
            assert found[0].aborted_transactions is None
            assert found[0].preferred_read_replica == -1
            if version >= 5:
                assert found[0].log_start_offset == 0


def test_a_fetch_inside_a_batch_returns_the_whole_batch(shared_node: RunningNode) -> None:
    shared_node.create_topic("inside")
    with shared_node.client() as client:
        produce(client, "inside", b"a", b"b", b"c")
        produce(client, "inside", b"d")
        assert values(rows(client.call(fetch_request("inside", {0: 2}), 12))[0]) == [
            b"a",
            b"b",
            b"c",
            b"d",
        ]
        assert values(rows(client.call(fetch_request("inside", {0: 3}), 12))[0]) == [b"d"]


def test_at_least_one_batch_comes_whatever_the_limits(shared_node: RunningNode) -> None:
    shared_node.create_topic("limits", 3)
    with shared_node.client() as client:
        for partition in range(3):
            produce(client, "limits", bytes(1000), partition=partition)
            produce(client, "limits", bytes(1000), partition=partition)

        def count(**limits: Any) -> list[int]:
            request = fetch_request("limits", {0: 0, 1: 0, 2: 0}, **limits)
            found = rows(client.call(request, 12))
            return [len(values(found[index])) for index in range(3)]

        assert count() == [2, 2, 2]
        assert count(max_bytes=1) == [1, 0, 0]
        assert count(partition_max_bytes=1) == [1, 0, 0]
        assert count(max_bytes=2500) == [2, 0, 0]
        assert count(max_bytes=3500) == [2, 1, 0]
        assert count(partition_max_bytes=1500) == [1, 1, 1]


def test_batches_carry_their_offsets_and_leader_epoch(shared_node: RunningNode) -> None:
    shared_node.create_topic("stamped")
    with shared_node.client() as client:
        for _ in range(3):
            produce(client, "stamped", b"x", b"y")
        found = rows(client.call(fetch_request("stamped", {0: 0}), 12))[0]
    headers = [header for _, header in iterate_headers(memoryview(bytes(found.records)))]
    assert [header.base_offset for header in headers] == [0, 2, 4]
    assert {header.partition_leader_epoch for header in headers} == {0}


def test_a_long_poll_is_answered_when_records_come(shared_node: RunningNode) -> None:
    shared_node.create_topic("poll")
    with shared_node.client() as consumer, shared_node.client() as producer:
        started = time.monotonic()
        consumer.send(fetch_request("poll", {0: 0}, max_wait_ms=_LONG_MS), 12)
        _wait_until(lambda: shared_node.node.metrics.delayed_fetches == 1)
        produce(producer, "poll", b"x")
        _, response = consumer.receive()
        assert values(rows(response)[0]) == [b"x"]
        assert time.monotonic() - started < _LONG_MS / 1000
        assert shared_node.call(lambda: shared_node.node.metrics.delayed_fetches) == 0


def test_a_long_poll_waits_for_enough_bytes_over_its_partitions(shared_node: RunningNode) -> None:
    shared_node.create_topic("enough", 2)
    with shared_node.client() as consumer, shared_node.client() as producer:
        produce(producer, "enough", bytes(400))
        request = fetch_request("enough", {0: 0, 1: 0}, max_wait_ms=_LONG_MS, min_bytes=1500)
        consumer.send(request, 12)
        _wait_until(lambda: shared_node.node.metrics.delayed_fetches == 1)
        produce(producer, "enough", bytes(400), partition=1)
        assert shared_node.call(lambda: shared_node.node.metrics.delayed_fetches) == 1
        produce(producer, "enough", bytes(400), partition=1)
        produce(producer, "enough", bytes(400), partition=0)
        found = rows(consumer.receive()[1])
        assert len(values(found[0])) + len(values(found[1])) >= 3


def test_a_long_poll_ends_with_its_time(shared_node: RunningNode) -> None:
    shared_node.create_topic("time-up")
    with shared_node.client() as client:
        started = time.monotonic()
        found = rows(client.call(fetch_request("time-up", {0: 0}, max_wait_ms=200), 12))[0]
        assert time.monotonic() - started >= 0.19
        assert (found.error_code, found.high_watermark) == (0, 0)


def test_a_long_poll_is_forgotten_when_its_client_goes(shared_node: RunningNode) -> None:
    shared_node.create_topic("gone")
    client = shared_node.client()
    client.send(fetch_request("gone", {0: 0}, max_wait_ms=_LONG_MS), 12)
    _wait_until(lambda: shared_node.node.metrics.delayed_fetches == 1)
    client.close()
    _wait_until(lambda: shared_node.node.metrics.delayed_fetches == 0)


def test_a_long_poll_does_not_hold_up_other_connections(shared_node: RunningNode) -> None:
    shared_node.create_topic("held", 2)
    with shared_node.client() as waiting, shared_node.client() as other:
        waiting.send(fetch_request("held", {0: 0}, max_wait_ms=_LONG_MS), 12)
        _wait_until(lambda: shared_node.node.metrics.delayed_fetches == 1)
        assert produce(other, "held", b"x", partition=1) == 0
        assert shared_node.node.metrics.delayed_fetches == 1


def test_deleting_a_topic_ends_its_long_polls(shared_node: RunningNode) -> None:
    from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState

    shared_node.create_topic("deleted")
    with shared_node.client() as waiting, shared_node.client() as admin:
        waiting.send(fetch_request("deleted", {0: 0}, max_wait_ms=_LONG_MS), 12)
        _wait_until(lambda: shared_node.node.metrics.delayed_fetches == 1)
        admin.call(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="deleted")], timeout_ms=10_000), 6
        )
        code = rows(waiting.receive()[1])[0].error_code
        assert code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_many_consumers_of_one_partition_are_all_served(shared_node: RunningNode) -> None:
    shared_node.create_topic("crowd")
    consumers = [shared_node.client() for _ in range(50)]
    for consumer in consumers:
        consumer.send(fetch_request("crowd", {0: 0}, max_wait_ms=_LONG_MS), 12)
    _wait_until(lambda: shared_node.node.metrics.delayed_fetches == 50)
    with shared_node.client() as producer:
        produce(producer, "crowd", b"x")
    for consumer in consumers:
        assert values(rows(consumer.receive()[1])[0]) == [b"x"]
        consumer.close()


def test_offsets_outside_of_the_log_are_refused(shared_node: RunningNode) -> None:
    shared_node.create_topic("outside")
    with shared_node.client() as client:
        produce(client, "outside", b"x")
        for offset in (-5, 2, 99):
            found = rows(client.call(fetch_request("outside", {0: offset}), 12))[0]
            assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (found.high_watermark, found.log_start_offset) == (1, 0)


def test_an_error_is_answered_at_once_beside_its_partition(shared_node: RunningNode) -> None:
    shared_node.create_topic("beside")
    with shared_node.client() as client:
        request = fetch_request("beside", {0: 0, 9: 0}, max_wait_ms=_LONG_MS)
        found = rows(client.call(request, 12))
        assert found[0].error_code == 0
        assert found[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown = client.call(fetch_request(b"0123456789abcdef", {3: 0}), 13)
        assert rows(unknown)[3].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_another_leader_epoch_is_fenced(shared_node: RunningNode) -> None:
    shared_node.create_topic("fenced")
    with shared_node.client() as client:

        def code(epoch: int) -> int:
            request = fetch_request("fenced", {})
            wanted = FetchPartition(
                partition=0, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=epoch
            )
            request.topics = [FetchTopic(topic="fenced", partitions=[wanted])]
            return int(rows(client.call(request, 12))[0].error_code)

        assert code(0) == code(-1) == 0
        assert code(5) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_session_sends_only_what_is_new(shared_node: RunningNode) -> None:
    shared_node.create_topic("session", 3)
    with shared_node.client() as client:
        for partition in range(3):
            produce(client, "session", b"x", partition=partition)
        full = client.call(
            fetch_request("session", {0: 0, 1: 0, 2: 1}, session_id=0, session_epoch=0), 12
        )
        assert full.session_id > 0
        assert sorted(rows(full)) == [0, 1, 2]

        def go_on(epoch: int, offsets: dict[int, int], **more: Any) -> Any:
            request = fetch_request(
                "session", offsets, session_id=full.session_id, session_epoch=epoch, **more
            )
            return client.call(request, 12)

        second = go_on(1, {0: 1, 1: 1})
        assert rows(second) == {}
        assert second.session_id == full.session_id
        produce(client, "session", b"new", partition=1)
        third = go_on(2, {})
        assert {index: values(row) for index, row in rows(third).items()} == {1: [b"new"]}
        produce(client, "session", b"unwanted", partition=0)
        fourth = go_on(3, {1: 2}, forgotten=[0])
        assert rows(fourth) == {}
        wrong = go_on(9, {})
        assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        missing = client.call(fetch_request("session", {}, session_id=1, session_epoch=5), 12)
        assert missing.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_incremental_session_waits_and_wakes(shared_node: RunningNode) -> None:
    topic_id = shared_node.create_topic("session-wait", 2)
    with shared_node.client() as client, shared_node.client() as producer:
        full = client.call(fetch_request(topic_id, {0: 0, 1: 0}, session_id=0, session_epoch=0), 17)
        client.send(
            fetch_request(
                topic_id, {}, max_wait_ms=_LONG_MS, session_id=full.session_id, session_epoch=1
            ),
            17,
        )
        _wait_until(lambda: shared_node.node.metrics.delayed_fetches == 1)
        produce(producer, "session-wait", b"x", partition=1)
        found = rows(client.receive()[1])
        assert {index: values(row) for index, row in found.items()} == {1: [b"x"]}
        assert found[1].high_watermark == 1


def test_a_big_answer_arrives_whole_and_in_order(shared_node: RunningNode) -> None:
    shared_node.create_topic("big", 2, durability="page-cache", segment_bytes="1000000")
    with shared_node.client() as client:
        for number in range(40):
            for partition in range(2):
                records = batch(bytes([number]) * 100_000)
                client.send(produce_request("big", {partition: records}, acks=1), 9)
        for _ in range(80):
            client.receive()
    # A reader with a small window: the answer is sent in many pieces.
    slow = shared_node.client(receive_buffer_bytes=4096)
    read: dict[int, list[bytes]] = {0: [], 1: []}
    while any(len(found) < 40 for found in read.values()):
        request = fetch_request(
            "big",
            {partition: len(found) for partition, found in read.items() if len(found) < 40},
            partition_max_bytes=3_000_000,
        )
        for partition, row in rows(slow.call(request, 12)).items():
            read[partition] += values(row)
    for found in read.values():
        assert found == [bytes([number]) * 100_000 for number in range(40)]


def test_read_committed_readers_get_a_list_of_aborted_transactions(
    shared_node: RunningNode,
) -> None:
    shared_node.create_topic("committed")
    with shared_node.client() as client:
        produce(client, "committed", b"x")
        found = rows(client.call(fetch_request("committed", {0: 0}, isolation_level=1), 12))[0]
        assert found.aborted_transactions == []
        assert values(found) == [b"x"]


def test_consumers_and_producers_at_once_lose_nothing(shared_node: RunningNode) -> None:
    shared_node.create_topic("at-once")
    read: list[bytes] = []

    def consume() -> None:
        with shared_node.client() as consumer:
            while len(read) < 600:
                request = fetch_request("at-once", {0: len(read)}, max_wait_ms=5000)
                read.extend(values(rows(consumer.call(request, 12))[0]))

    reader = threading.Thread(target=consume, daemon=True)
    reader.start()
    with shared_node.client() as producer:
        for start in range(0, 600, 20):
            frames = [
                producer.frame(produce_request("at-once", {0: batch(b"%d" % number)}), 9)
                for number in range(start, start + 20)
            ]
            producer.socket.sendall(b"".join(frames))
            for _ in range(20):
                producer.receive()
    reader.join(30)
    assert read == [b"%d" % number for number in range(600)]
