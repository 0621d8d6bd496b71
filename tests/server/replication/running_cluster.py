"""Real nodes with a real quorum, in threads of one process, which talk over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.server.running_node import RunningNode
from tidelog.cluster.metadata.image import PartitionImage
from tidelog.cluster.replication.partition import Partition
from tidelog.protocol.apis.create_topics import CreatableReplicaAssignment as Assignment
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.create_topics import CreatableTopicConfig as TopicConfig

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_TIMEOUT_S = 30.0
LAG_MS = 600


def eventually(holds: Callable[[], bool], what: str = "it does not come true") -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RunningCluster:
    """Nodes 1 to `count`, all of them voters. `rack` of node n is "rack-n"."""

    def __init__(self, data: Path, count: int = 3, settings: dict[str, str] | None = None) -> None:
        self._data = data
        self._ports = {node_id: free_port() for node_id in range(1, count + 1)}
        self._settings = settings or {}
        self._paused: dict[int, threading.Event] = {}
        self.nodes: dict[int, RunningNode] = {}
        for node_id in self._ports:
            self._start(node_id)
        self.wait_until_ready()

    def _start(self, node_id: int) -> None:
        voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in self._ports.items())
        self.nodes[node_id] = RunningNode(
            self._data / f"{node_id}",
            {
                "node.id": f"{node_id}",
                "cluster.id": CLUSTER_ID,
                "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node_id]}",
                "controller.quorum.voters": voters,
                "broker.rack": f"rack-{node_id}",
                "replica.lag.time.max.ms": f"{LAG_MS}",
                "replica.fetch.wait.max.ms": "100",
                "replica.fetch.backoff.ms": "50",
                **self._settings,
            },
        )

    def __getitem__(self, node_id: int) -> RunningNode:
        return self.nodes[node_id]

    def wait_until_ready(self) -> None:
        eventually(
            lambda: all(each.node.is_ready for each in self.nodes.values()), "nodes do not serve"
        )
        count = len(self.nodes)
        for each in self.nodes.values():
            each.wait_until(
                lambda node: (
                    sum(not broker.fenced for broker in node.image.brokers.values()) >= count
                )
            )

    # Failures

    def kill(self, node_id: int) -> None:
        """Ends a node without a word to the others."""
        running = self.nodes.pop(node_id)
        node = running.node

        def die() -> None:
            node._shutdown.is_under_way = True
            for acceptor in node._accepting:
                acceptor.close()
            node.connections.close_all("killed")
            node.reactor.stop()

        running.call(die)
        running.join()

    def restart(self, node_id: int) -> None:
        """A killed node comes back with its data."""
        self._start(node_id)
        self.wait_until_ready()

    def pause(self, node_id: int) -> None:
        """Its loop stands still, as after SIGSTOP."""
        self._paused[node_id] = resumed = threading.Event()
        self[node_id].node.reactor.post(lambda: (resumed.wait(_TIMEOUT_S), None)[1])

    def resume(self, node_id: int) -> None:
        self._paused.pop(node_id).set()

    def close(self) -> None:
        for node_id in list(self._paused):
            self.resume(node_id)
        for node_id in list(self.nodes):
            self.kill(node_id)

    # Topics

    def create_topic(self, name: str, assignments: list[list[int]], **configs: str) -> bytes:
        """Partition i has the replicas `assignments[i]`, of which the first leads."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                Assignment(partition_index=index, broker_ids=replicas)
                for index, replicas in enumerate(assignments)
            ],
            configs=[
                TopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        with next(iter(self.nodes.values())).client() as client:
            (row,) = client.call(request, 7).topics
        assert row.error_code == 0, row
        for replicas, index in zip(assignments, range(len(assignments)), strict=True):
            for node_id in replicas:
                eventually(lambda n=node_id, i=index: self.find(n, name, i) is not None)  # type: ignore[misc]
        topic_id: bytes = row.topic_id
        return topic_id

    def find(self, node_id: int, topic: str, index: int = 0) -> Partition | None:
        return self[node_id].node.partitions.get(topic, index)

    def partition(self, node_id: int, topic: str, index: int = 0) -> Partition:
        """A node's replica."""
        found = self.find(node_id, topic, index)
        assert found is not None
        return found

    def image(self, node_id: int, topic: str, index: int = 0) -> PartitionImage:
        """The partition as a node's metadata has it."""
        found = self[node_id].node.image.partition(topic, index)
        assert found is not None
        return found

    def wait_for_leader(self, topic: str, of: set[int], index: int = 0) -> int:
        """The leader, once it is one of these nodes and knows it."""

        def leads() -> int | None:
            for node_id in of & set(self.nodes):
                found = self.find(node_id, topic, index)
                if found is not None and found.is_leader:
                    return node_id
            return None

        eventually(lambda: leads() is not None, "nobody leads")
        leader = leads()
        assert leader is not None
        return leader

    def wait_for_isr(self, topic: str, isr: set[int], index: int = 0) -> None:
        for node_id in self.nodes.keys() - self._paused.keys():
            eventually(
                lambda n=node_id: set(self.image(n, topic, index).isr) == isr,  # type: ignore[misc]
                f"the in-sync set is {self.image(node_id, topic, index).isr}, not {isr}",
            )

    def wait_for_same_logs(self, topic: str, node_ids: tuple[int, ...], index: int = 0) -> bytes:
        """The bytes that all these replicas have, once they do."""
        eventually(
            lambda: len({self.content(each, topic, index) for each in node_ids}) == 1,
            "the replicas do not agree",
        )
        return self.content(node_ids[0], topic, index)

    def content(self, node_id: int, topic: str, index: int = 0) -> bytes:
        """All bytes of a replica's log."""

        def read() -> bytes:
            log = self.partition(node_id, topic, index).log
            data, offset = bytearray(), log.log_start_offset
            while offset < log.log_end_offset:
                found = log.read(offset, 1 << 20, log.log_end_offset)
                if found.file_slice is None:
                    break
                data += found.file_slice.read(log.files)
                offset = found.next_offset
            return bytes(data)

        return self[node_id].call(read)
