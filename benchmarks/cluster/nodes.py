"""Clusters of three nodes on this machine: of Tidelog, and of Apache Kafka in combined mode.

A cluster is measured like a single broker (`servers.Measured`); its nodes can be killed and started
one by one besides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, PartitionMetadata

from benchmarks.process_usage import Usage
from benchmarks.servers import SOURCES, KafkaServer, TidelogServer
from tidelog.client.cluster import Cluster as ClientCluster
from tidelog.client.cluster import ClusterClient
from tidelog.client.cluster.cluster_state import ClusterMembers, cluster_members
from tidelog.client.errors import ClientError
from tidelog.testing.broker import free_port

NODES = 3
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}

_SETTLE_TIMEOUT_S = 120.0
_ANSWER_TIMEOUT_S = 2.0
_POLL_S = 0.05


class NodeCluster:
    """Three server processes that are one cluster. Nodes count from 1."""

    kind: str
    name: str

    def __init__(self, data: Path) -> None:
        self.data = data
        self.nodes: dict[int, TidelogServer | KafkaServer] = {}
        self.started_at = 0.0

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def log_folders(self) -> list[Path]:
        return [folder for node in self.nodes.values() for folder in node.log_folders]

    def usages(self) -> list[Usage]:
        """Of the nodes, in order; nothing of one that does not run."""
        return [
            node.usage() if node.is_running() else Usage(0.0, 0.0) for node in self.nodes.values()
        ]

    def start(self) -> None:
        """Start all nodes; returns when all of them serve."""
        self.started_at = time.perf_counter()
        for node in self.nodes.values():
            node.start()
        self.await_serving()

    def stop(self) -> None:
        """Stop all nodes together: a majority of them must not be waited for by the last."""
        for node in self.nodes.values():
            node.begin_stop()
        for node in self.nodes.values():
            node.stop()

    # Its state

    def members(self) -> ClusterMembers:
        """The brokers and the quorum, as some node that runs tells them."""
        awake = ",".join(node.bootstrap for node in self.nodes.values() if node.is_running())
        with ClientCluster(awake, timeout_s=_ANSWER_TIMEOUT_S) as cluster:
            return cluster_members(ClusterClient(cluster, _ANSWER_TIMEOUT_S))

    def controller(self) -> int:
        """The node that leads the quorum."""
        return self._until(lambda: self.members().quorum.leader_id, "there is no controller")

    def await_serving(self) -> None:
        """Wait until all nodes are registered, unfenced and voters."""

        def serve() -> bool:
            members = self.members()
            unfenced = {each.node_id for each in members.brokers if not each.is_fenced}
            voters = set(members.quorum.voter_ids)
            return unfenced == voters == set(self.nodes) and members.quorum.leader_id is not None

        self._until(serve, "its nodes do not all serve")

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition."""
        return int(self._metadata(topic)[partition].leader)

    def await_in_sync(self, topic: str) -> None:
        """Wait until all nodes serve and have all of the topic."""
        self.await_serving()

        def in_sync() -> bool:
            found = self._metadata(topic).values()
            return all(len(each.isrs) == len(each.replicas) for each in found)

        self._until(in_sync, f"{topic} is not in sync")

    def _metadata(self, topic: str) -> dict[int, PartitionMetadata]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        found: dict[int, PartitionMetadata] = (
            admin.list_topics(topic, timeout=10).topics[topic].partitions
        )
        return found

    def _until(self, get: Callable[[], int | bool | None], problem: str) -> int:
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        last: object = None
        while time.monotonic() < deadline:
            try:
                found = get()
            except (ClientError, KafkaException) as error:
                last = error
            else:
                if found:
                    return int(found)
            time.sleep(_POLL_S)
        words = "\n".join(node.output_tail() for node in self.nodes.values())
        raise RuntimeError(f"{self.name}: {problem} ({last}); its last words: {words}")


class TidelogCluster(NodeCluster):
    """Nodes of `tidelog up`, of which the second and the third join the first."""

    kind = "tidelog"

    def __init__(
        self,
        data: Path,
        *,
        name: str = "Tidelog",
        sources: Path = SOURCES,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data)
        self.name = name
        for node_id in range(1, NODES + 1):
            self.nodes[node_id] = TidelogServer(
                data / f"node-{node_id}",
                name=name,
                sources=sources,
                settings={**REPLICATED, **(settings or {}), "node.id": str(node_id)},
                join=[node.bootstrap for node in self.nodes.values()],
            )


class KafkaCluster(NodeCluster):
    """Nodes that are broker and controller each, with Kafka's own heap and settings."""

    kind = "kafka"
    name = "Kafka"

    def __init__(
        self, data: Path, libraries: Path, *, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(data)
        voters = {node_id: free_port() for node_id in range(1, NODES + 1)}
        for node_id in voters:
            self.nodes[node_id] = KafkaServer(
                data / f"node-{node_id}",
                libraries,
                settings={**REPLICATED, **(settings or {})},
                node_id=node_id,
                voters=voters,
            )
