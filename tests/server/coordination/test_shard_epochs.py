"""Shards that belong to one leader epoch, from taking over to losing it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.coordination.fed_cluster import FedCluster
from tests.server.coordination.test_moving_groups import GROUP, INDEX, commit, fetch
from tidelog.cluster.metadata.image import PartitionImage
from tidelog.cluster.replication.partition import Partition
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.coordinator.shard import CoordinatorResult
from tidelog.promise import Promise
from tidelog.protocol.apis.heartbeat import HeartbeatRequest
from tidelog.protocol.apis.list_groups import ListGroupsRequest
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.coordination import shard_host
from tidelog.server.coordination.shard_host import HostedShard
from tidelog.server.node import Node


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FedCluster]:
    made = FedCluster(tmp_path)
    made.create_topic("t", [1])
    yield made
    made.stop()


def test_a_shard_that_is_lost_while_it_loads_is_gone(
    cluster: FedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = cluster.nodes[1].client(), cluster.nodes[2].client()
    assert commit(one, 5) == 0
    load = HostedShard.load_until
    loading: list[int] = []

    def load_never(hosted: HostedShard[object], give_way_at: float) -> bool:  # type: ignore[type-var]
        loading.append(hosted.leader_epoch)
        return False

    monkeypatch.setattr(HostedShard, "load_until", load_never)
    cluster.move_leader(CONSUMER_OFFSETS_TOPIC, INDEX, 2)
    cluster.nodes[2].wait_until(lambda _: len(loading) > 3)
    beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
    assert two.call(beat, 3).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed = two.call(ListGroupsRequest(), 4)
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster.set_leader(CONSUMER_OFFSETS_TOPIC, INDEX, -1)
    assert two.call(beat, 3).error_code == ErrorCode.NOT_COORDINATOR
    assert two.call(ListGroupsRequest(), 4).error_code == 0
    count = len(loading)
    cluster.on(2, lambda _: None)
    assert len(loading) <= count + 1, "it does not load any more"
    monkeypatch.setattr(HostedShard, "load_until", load)
    cluster.set_leader(CONSUMER_OFFSETS_TOPIC, INDEX, 2)
    assert fetch(two) == 5


def test_many_shards_share_a_turn_of_the_loop(
    cluster: FedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = cluster.nodes[1].client(), cluster.nodes[2].client()
    for offset in range(50):
        assert commit(one, offset) == 0
    monkeypatch.setattr(shard_host, "_LOAD_SLICE_BYTES", 200)
    monkeypatch.setattr(shard_host.ShardHost._load, "__defaults__", (0.0,))
    monkeypatch.setattr(shard_host.ShardHost.refresh, "__defaults__", (0.0,))
    cluster.move_leader(CONSUMER_OFFSETS_TOPIC, INDEX, 2)
    cluster.nodes[2].wait_until(lambda node: not node.groups.host.is_loading())
    assert fetch(two) == 49


def test_a_replica_that_begins_to_lead_late_is_noticed(
    cluster: FedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = cluster.nodes[1].client(), cluster.nodes[2].client()
    assert commit(one, 5) == 0
    lead = Partition.lead
    late: list[tuple[Partition, PartitionImage, int]] = []

    def lead_later(partition: Partition, image: PartitionImage, now_ms: int) -> None:
        if partition.node_id == 2:
            late.append((partition, image, now_ms))
        else:
            lead(partition, image, now_ms)

    monkeypatch.setattr(Partition, "lead", lead_later)
    cluster.move_leader(CONSUMER_OFFSETS_TOPIC, INDEX, 2)
    beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
    assert two.call(beat, 3).error_code == ErrorCode.NOT_COORDINATOR
    monkeypatch.undo()
    cluster.on(2, lambda _: [lead(*each) for each in late])
    cluster.nodes[2].wait_until(lambda node: bool(node.groups.host.loaded_shards()))
    assert fetch(two) == 5


def test_what_was_begun_at_another_epoch_is_refused(cluster: FedCluster) -> None:
    asked: list[int] = []

    def submit(node: Node, leader_epoch: int) -> Promise[str]:
        def answer(shard: object, now_ms: int) -> CoordinatorResult[str]:
            asked.append(leader_epoch)
            return CoordinatorResult(response="here")

        return node.groups.host.submit(INDEX, answer, leader_epoch=leader_epoch)

    before = cluster.image_of(CONSUMER_OFFSETS_TOPIC, INDEX).leader_epoch
    assert cluster.on(1, lambda node: submit(node, before)).result() == "here"
    cluster.set_leader(CONSUMER_OFFSETS_TOPIC, INDEX, 1)
    error = cluster.on(1, lambda node: submit(node, before)).error
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.NOT_COORDINATOR
    assert cluster.on(1, lambda node: submit(node, before + 1)).result() == "here"
    assert asked == [before, before + 1]
