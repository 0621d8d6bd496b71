"""One node of a cluster has no room on its disk: the others lead what it led."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog.cluster.metadata.image import MetadataImage, PartitionImage
from tidelog.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.history import Outcome
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.cluster.options import ClusterOptions
from tidelog.testing.simulation.cluster.routing import ClusterRouter
from tidelog.testing.simulation.cluster.scenario import CLUSTER_ID
from tidelog.testing.simulation.network import Network
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.simulation import SECOND_US, Simulation
from tidelog.testing.simulation.workloads.producing import IdempotentProducer
from tidelog.testing.simulation.workloads.topics import ask_to_create
from tidelog.testing.simulation.workloads.workspace import Workspace

PARTITIONS = 3


class FilledUp:
    """Three nodes, a topic on all of them and one on each alone, and producers for both."""

    def __init__(self, seed: int) -> None:
        self.simulation = simulation = Simulation(seed, keeps_trace=True)
        self.network = Network(simulation)
        options = ClusterOptions.draw(*map(simulation.random, ("options", "more", "situations")))
        options.nodes, options.voters, options.has_static_voters = 3, 3, True
        self.nodes = [
            SimulatedNode(
                simulation,
                self.network,
                f"node-{number}",
                settings={
                    "cluster.id": CLUSTER_ID,
                    **options.node_settings(number),
                    "leader.imbalance.check.interval.seconds": "1",
                },
            )
            for number in range(1, 4)
        ]
        for node in self.nodes:
            assert node.start()
        self.wait_for(lambda: all(each.node and each.node.is_ready for each in self.nodes))
        self.replicated = self.make_topic("replicated", replicas=3)
        self.alone = self.make_topic("alone", replicas=1)
        made = [*self.replicated, *self.alone]
        self.wait_for(lambda: all(workspace.partitions for workspace in made))
        self.wait_for(lambda: len({row.leader for row in self.rows("replicated")}) == 3)

    def make_topic(self, topic: str, replicas: int) -> list[Workspace]:
        """With a workspace and a producer for each partition, for one that is stuck would hold up
        the others."""
        workspaces = []
        for _ in range(PARTITIONS):
            workspace = Workspace(self.make_client)
            workspaces.append(workspace)
            client = self.make_client(f"producer-{topic}-{len(workspaces)}")
            workspace.start_when_ready(client, IdempotentProducer(client, workspace, acks=-1).run)
        client = self.make_client(f"maker-of-{topic}")

        async def make() -> None:
            answered = await ask_to_create(
                client, topic, PARTITIONS, {}, replication_factor=replicas
            )
            assert answered.code is ErrorCode.NONE
            for index, workspace in enumerate(workspaces):
                workspace.partitions = [TopicPartition(topic, index)]

        client.start(make())
        return workspaces

    def make_client(self, name: str) -> SimulatedClient:
        client = SimulatedClient(self.simulation, self.network, name, self.nodes[0].address)
        client.router = ClusterRouter(client, [node.address for node in self.nodes])
        return client

    @property
    def image(self) -> MetadataImage:
        return max((n.node.image for n in self.nodes if n.node), key=lambda image: image.offset)

    def rows(self, topic: str) -> tuple[PartitionImage, ...]:
        return self.image.topics_by_name[topic].partitions

    def acknowledged(self, workspaces: list[Workspace]) -> list[int]:
        return [
            sum(each.outcome is Outcome.OK for each in workspace.history)
            for workspace in workspaces
        ]

    def wait_for(self, holds: Callable[[], bool], seconds_max: float = 20) -> None:
        simulation = self.simulation
        simulation.run_until(simulation.now_us + int(seconds_max * SECOND_US), unless=holds)
        assert holds()

    def run(self, seconds: float) -> None:
        self.simulation.run_until(self.simulation.now_us + int(seconds * SECOND_US))


@pytest.mark.parametrize("seed", range(1, 3))
def test_others_lead_what_a_node_without_room_led_until_there_is_room(seed: int) -> None:
    cluster = FilledUp(seed)
    cluster.run(2)
    full = cluster.nodes[seed % 3]
    full.disk.space_bytes = full.disk.used_bytes + (0, 3000)[seed % 2]
    cluster.wait_for(
        lambda: all(row.leader != full.node_id for row in cluster.rows("replicated")), 5
    )
    # Those that replicate what it leads no more go on without it as soon as it lags.
    cluster.run(3)
    before = cluster.acknowledged(cluster.replicated)
    cluster.run(3)
    after = cluster.acknowledged(cluster.replicated)
    assert all(now > then + 5 for now, then in zip(after, before, strict=True)), (before, after)
    # What it has alone, nobody else can lead. The balancing of leaders brings nothing back.
    assert all(row.leader == row.replicas[0] for row in cluster.rows("alone"))
    cluster.run(3)
    assert all(row.leader != full.node_id for row in cluster.rows("replicated"))
    assert all(not broker.fenced for broker in cluster.image.brokers.values())
    client = cluster.make_client("operator")
    rows: list[int] = []

    async def elect() -> None:
        answer = await client.call(
            ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5000),
            ElectLeadersResponse,
        )
        rows.extend(
            each.error_code
            for topic in answer.replica_election_results
            for each in topic.partition_result
        )

    client.start(elect())
    cluster.wait_for(lambda: bool(rows), 5)
    assert set(rows) == {ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}

    full.disk.space_bytes = None
    cluster.wait_for(lambda: all(len(row.isr) == 3 for row in cluster.rows("replicated")), 10)
    cluster.wait_for(
        lambda: all(row.leader == row.replicas[0] for row in cluster.rows("replicated")), 10
    )
    before = cluster.acknowledged(cluster.alone)
    cluster.run(3)
    after = cluster.acknowledged(cluster.alone)
    assert all(now > then for now, then in zip(after, before, strict=True)), (before, after)
    for workspace in (*cluster.replicated, *cluster.alone):
        assert workspace.problems == []
    assert [bug for node in cluster.nodes for bug in node.bugs] == []
