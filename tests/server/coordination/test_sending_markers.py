"""Where markers are sent, how many at once, and what ends that."""

from __future__ import annotations

from typing import cast

import pytest

from tests.server.coordination.fake_peers import Call, FakeNode
from tidelog.coordinator.transaction_shard import WriteMarkers
from tidelog.promise import Promise
from tidelog.protocol.apis.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.coordination.transaction_markers import TransactionMarkers
from tidelog.server.network.peer_connection import PeerDisconnected

Rows = set[tuple[int, str, int]]


@pytest.fixture
def node() -> FakeNode:
    made = FakeNode()
    made.lead("t", 2, 2, 3)
    return made


@pytest.fixture
def markers(node: FakeNode) -> TransactionMarkers:
    return TransactionMarkers(node.node)


def decided(producer_id: int, *indexes: int) -> WriteMarkers:
    return WriteMarkers(
        transactional_id=f"id-{producer_id}",
        producer_id=producer_id,
        producer_epoch=0,
        committed=True,
        partitions=frozenset(TopicPartition("t", index) for index in indexes),
        transaction_version=2,
        start_ms=0,
        decided_ms=0,
    )


def rows(call: Call) -> Rows:
    request = cast(WriteTxnMarkersRequest, call.message)
    return {
        (marker.producer_id, topic.name, index)
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    }


def reply(node: FakeNode, code: ErrorCode = ErrorCode.NONE) -> Rows:
    """Answer the oldest request with one code for everything."""
    request = cast(WriteTxnMarkersRequest, node.calls[0].message)
    call = node.answer(
        WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=code
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )
    )
    return rows(call)


def test_one_request_for_each_node_and_the_next_with_all_that_came_meanwhile(
    node: FakeNode, markers: TransactionMarkers
) -> None:
    written = [markers.write(decided(producer, 0, 1, 2), 0, 7) for producer in range(5)]
    assert [call.node_id for call in node.calls] == [2, 3]
    assert rows(node.calls[0]) == {(0, "t", 0), (0, "t", 1)}
    assert reply(node) == {(0, "t", 0), (0, "t", 1)}
    assert not written[0].is_done
    assert reply(node) == {(0, "t", 2)}
    assert written[0].is_done
    assert [call.node_id for call in node.calls] == [2, 3]
    assert rows(node.calls[0]) == {(each, "t", index) for each in range(1, 5) for index in (0, 1)}
    reply(node)
    reply(node)
    assert all(each.is_done for each in written)
    assert not node.calls
    assert markers.count == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_is_refused_is_tried_again_after_a_pause_that_grows(
    node: FakeNode, markers: TransactionMarkers, code: ErrorCode
) -> None:
    written = markers.write(decided(1, 0), 0, 7)
    pauses = []
    for _ in range(7):
        reply(node, code)
        assert not node.calls
        began = node.time_s
        while not node.calls:
            node.pass_time(0.01)
        pauses.append(node.time_s - began)
    assert pauses[0] == pytest.approx(0.05, abs=0.02)
    assert pauses[-1] == pytest.approx(1.0, abs=0.02)
    reply(node)
    assert written.is_done


def test_a_new_leader_is_asked_at_once(node: FakeNode, markers: TransactionMarkers) -> None:
    written = markers.write(decided(1, 0), 0, 7)
    reply(node, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not node.calls
    markers.metadata_changed(node.lead("t", 3, 2, 3))
    assert [call.node_id for call in node.calls] == [3]
    reply(node)
    assert written.is_done
    node.pass_time(10)
    assert not node.calls


def test_a_new_leader_is_asked_while_the_one_before_does_not_answer(
    node: FakeNode, markers: TransactionMarkers
) -> None:
    written = markers.write(decided(1, 0), 0, 7)
    (stuck,) = node.calls
    markers.metadata_changed(node.lead("t", 3, 2, 3))
    assert [call.node_id for call in node.calls] == [2, 3]
    node.calls.remove(stuck)
    reply(node)
    assert written.is_done
    stuck.done(None, PeerDisconnected("gone"))
    node.pass_time(10)
    assert not node.calls


def test_a_node_that_is_lost_is_tried_again(node: FakeNode, markers: TransactionMarkers) -> None:
    written = markers.write(decided(1, 0), 0, 7)
    node.answer(error=PeerDisconnected("gone"))
    node.pass_time(0.1)
    reply(node)
    assert written.is_done


def test_a_partition_without_leader_waits_for_one(
    node: FakeNode, markers: TransactionMarkers
) -> None:
    node.lead("t", -1)
    written = markers.write(decided(1, 0), 0, 7)
    node.pass_time(5)
    assert not node.calls
    markers.metadata_changed(node.lead("t", 2))
    reply(node)
    assert written.is_done


def test_partitions_of_a_deleted_topic_are_dropped(
    node: FakeNode, markers: TransactionMarkers
) -> None:
    written = markers.write(decided(1, 0, 2), 0, 7)
    reply(node, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not written.is_done
    markers.metadata_changed(node.lead("t"))
    assert written.is_done
    assert markers.write(decided(2, 0), 0, 7).is_done


def test_a_fenced_coordinator_stops(node: FakeNode, markers: TransactionMarkers) -> None:
    written = markers.write(decided(1, 0, 1), 0, 7)
    reply(node, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    node.pass_time(10)
    assert not node.calls
    assert not written.is_done
    assert markers.count == 0


def test_a_partition_that_has_seen_a_later_epoch_has_had_its_marker(
    node: FakeNode, markers: TransactionMarkers
) -> None:
    written = markers.write(decided(1, 0), 0, 7)
    reply(node, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert written.is_done


def test_a_shard_that_is_lost_takes_its_markers_along(
    node: FakeNode, markers: TransactionMarkers
) -> None:
    lost = [markers.write(decided(1, 0), 0, 7), markers.write(decided(2, 0), 0, 7)]
    kept = markers.write(decided(3, 0), 1, 7)
    markers.forget(0)
    reply(node)
    assert rows(node.calls[0]) == {(3, "t", 0)}
    reply(node)
    node.pass_time(10)
    assert not node.calls
    assert [each.is_done for each in [*lost, kept]] == [False, False, True]


def test_a_row_that_the_answer_lacks_is_tried_again(
    node: FakeNode, markers: TransactionMarkers
) -> None:
    written: Promise[None] = markers.write(decided(1, 0), 0, 7)
    node.answer(WriteTxnMarkersResponse(markers=[]))
    node.pass_time(0.1)
    reply(node)
    assert written.is_done
