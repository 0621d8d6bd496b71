"""Nodes that are controllers only, or brokers only, as Kafka's `process.roles` has them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.server.batches import produce
from tests.server.replication.running_cluster import CLUSTER_ID, eventually, free_port
from tests.server.running_node import RunningNode
from tidelog.cluster.metadata.image import ConfigResourceType
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.describe_cluster import DescribeClusterRequest
from tidelog.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.errors import ErrorCode
from tidelog.server.node import Node
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


def test_a_controller_tells_tools_of_itself_and_takes_changes(
    nodes: tuple[RunningNode, RunningNode],
) -> None:
    controller, _ = nodes
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name=f"{CONTROLLER_ID}"
    )
    with controller.client() as client:
        asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        offered = {api.api_key for api in client.call(asked, 4).api_keys}
        described = client.call(DescribeClusterRequest(endpoint_type=2), 1)
        mistaken = client.call(DescribeClusterRequest(endpoint_type=1), 1)
        (settings,) = client.call(DescribeConfigsRequest(resources=[resource]), 4).results
        topic = CreatableTopic(name="by-controller", num_partitions=1, replication_factor=1)
        (created,) = client.call(CreateTopicsRequest(topics=[topic]), 7).topics
    assert ApiKey.DESCRIBE_CLUSTER in offered
    assert ApiKey.METADATA not in offered
    assert described.controller_id == CONTROLLER_ID
    (voter,) = described.brokers
    assert (voter.broker_id, voter.port) == (CONTROLLER_ID, controller.node.listeners[0].port)
    assert mistaken.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert settings.error_code == 0
    assert {row.name: row.value for row in settings.configs}["process.roles"] == "controller"
    assert created.error_code == 0


def test_a_topic_made_unasked_has_what_the_broker_was_told_before_what_the_controller_was(
    tmp_path: Path,
) -> None:
    controller_port = free_port()
    common = {
        "cluster.id": CLUSTER_ID,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{controller_port}",
    }
    controller = RunningNode(
        tmp_path / "controller",
        {
            "process.roles": "controller",
            "node.id": f"{CONTROLLER_ID}",
            "listeners": f"CONTROLLER://127.0.0.1:{controller_port}",
            "num.partitions": "3",
            **common,
        },
    )
    told = RunningNode(
        tmp_path / "told",
        {"process.roles": "broker", "node.id": "1", "num.partitions": "5", **common},
    )
    not_told = RunningNode(
        tmp_path / "not-told", {"process.roles": "broker", "node.id": "2", **common}
    )
    eventually(lambda: told.node.is_ready and not_told.node.is_ready, "they do not serve")
    try:
        for broker, topic, count in ((told, "of-broker", 5), (not_told, "of-controller", 3)):
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True
            )
            with broker.client() as client:
                client.call(request, 12)
            broker.wait_until(partial(_has_partitions, topic, count))
    finally:
        for each in (told, not_told, controller):
            each.stop()


def _has_partitions(topic: str, count: int, node: Node) -> bool:
    image = node.image.topics_by_name.get(topic)
    return image is not None and len(image.partitions) == count
