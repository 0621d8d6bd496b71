"""The cluster for tests, as a user's test suite meets it."""

from pathlib import Path

import pytest

from tidelog.client import connect
from tidelog.testing import BrokerError, Cluster


def test_a_cluster_of_one_serves_and_tells_who_leads() -> None:
    with Cluster(nodes=1, num_partitions=2) as cluster:
        data = cluster.data
        with connect(cluster.bootstrap) as client:
            client.create_topic("orders")
            client.publish("orders", value="one espresso")
            client.flush()
            assert len(client.layout_of("orders").leader_racks) == 2
        assert cluster.controller() == 1
        assert cluster.leader_of("orders", 1) == 1
        assert cluster.running == [1]
        cluster.restart(1)
        assert cluster.leader_of("orders", 1) == 1
        cluster.kill(1)
        assert cluster.running == []
        cluster.start(1)
        cluster.pause(1)
        with pytest.raises(BrokerError, match="no node of the cluster runs"):
            cluster.members()
        cluster.resume(1)
        assert cluster.controller() == 1
        assert "node_started" in cluster.log_of(1)
    assert not data.exists()


def publish(cluster: Cluster, topic: str, values: list[str]) -> None:
    with connect(cluster.bootstrap) as client:
        for value in values:
            client.publish(topic, value=value)
        client.flush()


def test_three_nodes_outlive_the_loss_of_their_controller(tidelog_cluster: Cluster) -> None:
    cluster = tidelog_cluster
    members = cluster.members()
    assert sorted(members.quorum.voter_ids) == [1, 2, 3]
    assert [broker.is_fenced for broker in members.brokers] == [False] * 3
    with connect(cluster.bootstrap) as client:
        client.create_topic("orders", partitions=3)
    publish(cluster, "orders", ["before"])
    lost = cluster.controller()
    cluster.kill(lost)
    assert cluster.controller() != lost
    for partition in range(3):
        assert cluster.leader_of("orders", partition) != lost
    publish(cluster, "orders", ["while one is away"])
    cluster.start(lost)
    cluster.await_serving()
    cluster.restart(lost)
    assert cluster.running == [1, 2, 3]


def test_a_paused_node_is_not_the_controller_for_long_and_comes_back() -> None:
    with Cluster(nodes=3) as cluster:
        paused = cluster.controller()
        cluster.pause(paused)
        assert cluster.controller() != paused
        cluster.resume(paused)
        cluster.await_serving()


def test_a_stopped_cluster_starts_again_all_at_once_and_grows(tmp_path: Path) -> None:
    cluster = Cluster(nodes=3, data=tmp_path)
    with cluster:
        cluster_id = cluster.members().cluster_id
    with cluster:
        assert cluster.members().cluster_id == cluster_id
        assert cluster.add() == 4
        members = cluster.members()
        assert sorted(members.quorum.voter_ids) == [1, 2, 3]
        assert members.node_ids == [1, 2, 3, 4]


def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing() -> None:
    cluster = Cluster(nodes=1, settings={"num.partition": "1"})
    with pytest.raises(BrokerError, match=r"num\.partitions"), cluster:
        pass
    assert not cluster.data.exists()


def test_a_given_folder_is_kept(tmp_path: Path) -> None:
    with Cluster(nodes=1, data=tmp_path):
        pass
    assert (tmp_path / "node-1" / "meta.properties").exists()


def test_a_cluster_has_nodes() -> None:
    with pytest.raises(BrokerError, match="0 nodes"):
        Cluster(nodes=0)
