"""Coordinators on a real node: taking over, losing and loading their partitions."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

import pytest

from tests.groups.librdkafka_member import eventually
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.delete_groups import DeleteGroupsRequest
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.apis.heartbeat import HeartbeatRequest
from tidelog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.apis.list_groups import ListGroupsRequest
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.apis.offset_fetch import OffsetFetchRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.server.node import Node
from tidelog.testing import Broker
from tidelog.testing.wire import WireClient

Result = TypeVar("Result")

OFFSETS = "__consumer_offsets"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[WireClient]:
    with WireClient("127.0.0.1", broker.port) as connected:
        create_topic(connected, "t", 1)
        yield connected


def on_loop(broker: Broker, action: Callable[[Node], Result]) -> Result:
    """Runs on the node's own thread, which owns everything."""
    future: Future[Result] = Future()
    node = broker.node
    node.reactor.post(lambda: future.set_result(action(node)))
    return future.result(30)


def find(client: WireClient, group: str = "g") -> None:
    assert client.call(FindCoordinatorRequest(key=group), version=1).error_code == 0


def join(group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def commit(
    group: str, count: int = 1, *, topic: str = "t", metadata: str = ""
) -> OffsetCommitRequest:
    rows = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=index, committed_metadata=metadata
        )
        for index in range(count)
    ]
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)]
    )


def create_topic(client: WireClient, name: str, partitions: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    client.call(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), version=5)


def test_the_topic_is_made_when_somebody_asks_for_a_coordinator(
    broker: Broker, client: WireClient
) -> None:
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert client.call(beat, version=3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert OFFSETS not in broker.node.image.topics_by_name
    find(client)
    image = broker.node.image
    assert len(image.topics_by_name[OFFSETS].partitions) == 4
    assert image.topic_configs(OFFSETS)["cleanup.policy"] == "compact"
    assert client.call(beat, version=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_waits_is_sent_away_when_the_partition_is_lost(
    broker: Broker, client: WireClient
) -> None:
    find(client)
    joined = client.call(join(), version=3)
    with WireClient("127.0.0.1", broker.port) as other:
        other.send(join(), version=3)
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        eventually(lambda: client.call(beat, version=3).error_code != 0, "a rebalance")
        topics = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=OFFSETS)], topic_names=[OFFSETS], timeout_ms=20_000
        )
        client.call(topics, version=5)
        assert other.receive()[1].error_code == ErrorCode.NOT_COORDINATOR
    assert client.call(beat, version=3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    find(client)
    assert client.call(beat, version=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_many_offsets_are_loaded_in_slices(broker: Broker, client: WireClient) -> None:
    find(client)
    create_topic(client, "wide", 100)
    for group in range(20):
        # As much to load as 2000 partitions with nothing to say.
        wanted = commit(f"g{group}", 100, topic="wide", metadata="m" * 1_000)
        response = client.call(wanted, version=5)
        assert {row.error_code for row in response.topics[0].partitions} == {0}
    broker.stop()
    broker.start()
    with WireClient("127.0.0.1", broker.port) as again:
        eventually(
            lambda: again.call(ListGroupsRequest(), version=4).error_code == 0, "everything loaded"
        )
        assert len(again.call(ListGroupsRequest(), version=4).groups) == 20
        for group in (0, 7, 19):
            request = OffsetFetchRequest(group_id=f"g{group}", topics=None)
            (topic,) = again.call(request, version=5).topics
            assert {row.partition_index: row.committed_offset for row in topic.partitions} == {
                index: index for index in range(100)
            }


def test_what_does_not_fit_one_batch_is_written_as_several(
    broker: Broker, client: WireClient
) -> None:
    find(client)
    create_topic(client, "wide", 300)
    request = commit("big", 300, topic="wide", metadata="m" * 4_000)
    response = client.call(request, version=5)
    assert {row.error_code for row in response.topics[0].partitions} == {0}
    broker.stop()
    broker.start()
    with WireClient("127.0.0.1", broker.port) as again:
        everything = OffsetFetchRequest(group_id="big", topics=None)
        eventually(lambda: again.call(everything, version=5).error_code == 0, "everything loaded")
        (topic,) = again.call(everything, version=5).topics
        assert len(topic.partitions) == 300
        deleted = again.call(DeleteGroupsRequest(groups_names=["big"]), version=1)
        assert [row.error_code for row in deleted.results] == [0]
        assert again.call(everything, version=5).topics == []


def test_a_disk_that_fails_is_told_to_the_clients(broker: Broker, client: WireClient) -> None:
    find(client)
    assert client.call(commit("g"), version=5).topics[0].partitions[0].error_code == 0

    def fail(node: Node) -> None:
        for log in node.store.logs.values():
            log.storage_error = "the disk is gone"

    on_loop(broker, fail)
    row = client.call(commit("g"), version=5).topics[0].partitions[0]
    assert row.error_code == ErrorCode.NOT_COORDINATOR


def test_a_commit_that_never_becomes_durable_is_given_up(
    broker: Broker, client: WireClient
) -> None:
    find(client)

    def hold_back(node: Node) -> None:
        node.groups.host.commit_timeout_s = 0.2
        for partition in node.partitions.of_topic(OFFSETS):
            partition.log.on_durable = None

    on_loop(broker, hold_back)
    row = client.call(commit("g"), version=5).topics[0].partitions[0]
    assert row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
