"""Produce requests wait for durability: until it comes, time is up, or the disk fails."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.server.batches import batch, fetch_request, produce_request, rows
from tests.server.running_node import RunningNode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.delayed import DelayedFetch, DelayedProduce
from tidelog.server.request import Deferred
from tidelog.storage.segment.log_slice import FileSlice


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


@contextmanager
def _stuck_disk(node: RunningNode) -> Iterator[None]:
    """Nothing becomes durable meanwhile: no group is handed to the journal."""
    store = node.node.store
    commit = store.commit
    node.call(lambda: setattr(store, "commit", lambda: None))
    try:
        yield
    finally:
        node.call(lambda: setattr(store, "commit", commit))


def test_what_is_not_durable_in_time_is_answered_with_a_timeout(served: RunningNode) -> None:
    served.create_topic("stuck", 2)
    with served.client() as client:
        with _stuck_disk(served):
            for acks in (1, -1):
                request = produce_request(
                    "stuck", {0: batch(b"x"), 1: batch(b"y")}, acks=acks, timeout_ms=200
                )
                answered = client.call(request, 9).responses[0].partition_responses
                assert [row.error_code for row in answered] == [ErrorCode.REQUEST_TIMED_OUT] * 2
            one = produce_request("stuck", {0: batch(b"x")}, timeout_ms=100)
            (row,) = client.call(one, 9).responses[0].partition_responses
            assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
            # Readers see nothing that could still be lost.
            assert rows(client.call(fetch_request("stuck", {0: 0}), 12))[0].high_watermark == 0
        (row,) = client.call(one, 9).responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (0, 4 - 1)
    assert served.call(lambda: served.node.metrics.delayed_produces) == 0


def test_what_waits_for_a_disk_that_fails_is_told_so(served: RunningNode) -> None:
    served.create_topic("failed", 2)
    with served.client() as client:
        with _stuck_disk(served):
            client.send(produce_request("failed", {0: batch(b"x")}), 9)
            client.send(produce_request("failed", {1: batch(b"y")}), 9)
            _wait_until(lambda: served.node.metrics.delayed_produces == 2)
            store = served.node.store

            def fail() -> None:
                assert store.on_directory_failure is not None
                store.on_directory_failure(store.directories[0], [TopicPartition("failed", 0)])

            served.call(fail)
            _, answer = client.receive()
            (row,) = answer.responses[0].partition_responses
            assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        _, answer = client.receive()
        assert answer.responses[0].partition_responses[0].error_code == 0


def test_what_waits_for_a_topic_that_is_deleted_is_told_so(served: RunningNode) -> None:
    from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState

    served.create_topic("deleted")
    with served.client() as client, served.client() as admin, _stuck_disk(served):
        client.send(produce_request("deleted", {0: batch(b"x")}), 9)
        _wait_until(lambda: served.node.metrics.delayed_produces == 1)
        admin.call(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="deleted")], timeout_ms=10_000), 6
        )
        _, answer = client.receive()
        (row,) = answer.responses[0].partition_responses
        assert row.error_code in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )


def test_a_client_that_goes_leaves_nothing_behind(served: RunningNode) -> None:
    served.create_topic("left")
    metrics = served.node.metrics
    with _stuck_disk(served):
        with served.client() as client:
            for _ in range(10):
                client.send(produce_request("left", {0: batch(b"x")}), 9)
            _wait_until(lambda: metrics.delayed_produces == 10)
        _wait_until(lambda: metrics.requests_in_flight == metrics.in_flight_bytes == 0)
    with served.client() as client:
        client.call(produce_request("left", {0: batch(b"x")}), 9)
    assert served.call(lambda: metrics.delayed_produces) == 0
    assert served.call(lambda: served.node.waiting.count) == 0


def test_requests_that_waited_need_no_garbage_collection(served: RunningNode) -> None:
    """Each a cycle of references, thousands a second would make the collector hold the loop, and
    meanwhile keep the files they have read open."""
    served.create_topic("cycles")
    rounds = 50
    kinds = (DelayedProduce, DelayedFetch, Deferred, FileSlice)
    gc.collect()
    gc.disable()
    try:
        with served.client() as producer, served.client() as consumer:
            for offset in range(rounds):
                consumer.send(fetch_request("cycles", {0: offset}, max_wait_ms=30_000), 12)
                _wait_until(lambda: served.node.metrics.delayed_fetches == 1)
                producer.call(produce_request("cycles", {0: batch(b"x")}), 9)
                _, answer = consumer.receive()
                assert rows(answer)[0].high_watermark == offset + 1
        alive = [each for each in gc.get_objects() if isinstance(each, kinds)]
        assert len(alive) < rounds / 2, Counter(type(each) for each in alive)
    finally:
        gc.enable()
