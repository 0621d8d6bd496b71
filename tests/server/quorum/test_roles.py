"""Nodes that are controllers only, or brokers only, as Kafka's `process.roles` has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.batches import produce
from tests.server.replication.running_cluster import CLUSTER_ID, eventually, free_port
from tests.server.running_node import RunningNode
from tidelog.protocol.apis.metadata import MetadataRequest
from tidelog.testing.wire import ConnectionEnded

CONTROLLER_ID, BROKER_ID = 101, 1


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[RunningNode, RunningNode]]:
    """A controller and a broker."""
    controller_port = free_port()
    common = {
        "cluster.id": CLUSTER_ID,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{controller_port}",
    }
    # The broker first: it waits for the controller.
    broker = RunningNode(
        tmp_path / "broker", {"process.roles": "broker", "node.id": f"{BROKER_ID}", **common}
    )
    controller = RunningNode(
        tmp_path / "controller",
        {
            "process.roles": "controller",
            "node.id": f"{CONTROLLER_ID}",
            "listeners": f"CONTROLLER://127.0.0.1:{controller_port}",
            **common,
        },
    )
    eventually(lambda: controller.node.is_ready and broker.node.is_ready, "they do not serve")
    yield controller, broker
    broker.stop()
    controller.stop()


def test_a_broker_serves_with_a_controller_on_another_node(
    nodes: tuple[RunningNode, RunningNode],
) -> None:
    controller, broker = nodes
    assert controller.node.metadata.is_active
    assert not broker.node.metadata.is_active
    broker.create_topic("orders")
    broker.wait_until(lambda node: node.partitions.get("orders", 0) is not None)
    with broker.client() as client:
        assert produce(client, "orders", b"a") == 0
        brokers = client.call(MetadataRequest(topics=[]), 12).brokers
    assert [each.node_id for each in brokers] == [BROKER_ID], "a controller is no broker"


def test_a_controller_has_nothing_for_clients(nodes: tuple[RunningNode, RunningNode]) -> None:
    controller, _ = nodes
    with controller.client() as client, pytest.raises(ConnectionEnded):
        client.call(MetadataRequest(topics=[]), 12)
