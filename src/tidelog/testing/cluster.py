"""A real cluster for tests: one process for each node, which a test may kill, pause and restart."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tidelog.client.cluster import Cluster as ClientCluster
from tidelog.client.cluster import ClusterClient
from tidelog.client.cluster.cluster_state import ClusterMembers, cluster_members
from tidelog.client.errors import ClientError
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.supervision.replicated_defaults import replicated_defaults
from tidelog.testing.broker import Broker, BrokerError

T = TypeVar("T")

VOTERS_MAX = 3

_SETTLE_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 2.0
_POLL_S = 0.02


class Cluster:
    """Nodes on free ports of the loopback, ended with the `with` block. They count from 1.

    Settings of all nodes are given by Kafka's names, in `settings` or with underscores for dots:
    `Cluster(nodes=3, num_partitions=6)`. The first three nodes vote. `racks` names where the nodes
    stand, one after the other and around again. Data and logs of the nodes are in a temporary
    folder unless `data` is given; a given folder is kept.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        data: Path | str | None = None,
        racks: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        **more_settings: object,
    ) -> None:
        if nodes < 1:
            raise BrokerError(f"a cluster of {nodes} nodes has none; ask for one or more")
        self._own_folder = data is None
        self._racks = racks
        self.data = Path(tempfile.mkdtemp(prefix="tidelog-cluster-") if data is None else data)
        self._settings = {
            **replicated_defaults(nodes),
            **(settings or {}),
            **{name.replace("_", "."): _text(value) for name, value in more_settings.items()},
        }
        self.brokers: dict[int, Broker] = {}
        self._paused: set[int] = set()
        for node_id in range(1, nodes + 1):
            self._plan(node_id)

    def __enter__(self) -> Cluster:
        try:
            self.start_all()
        except BaseException:
            self._kill_all()
            self._remove_data()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """Where clients connect: the addresses of all nodes."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def bootstrap_servers(self) -> str:
        """The same, by the name that `Broker` has for it."""
        return self.bootstrap

    @property
    def running(self) -> list[int]:
        """The nodes whose process runs, also those that are paused."""
        return [node_id for node_id, broker in self.brokers.items() if broker.is_running]

    def log_of(self, node: int) -> str:
        """What a node has printed so far."""
        return self._output(node).read_text(errors="replace")

    # Life and death

    def start_all(self) -> None:
        """Start the nodes that do not run; returns when all are registered and serve."""
        stopped = [node for node, broker in self.brokers.items() if not broker.is_running]
        new = [node for node in stopped if not self.brokers[node].data.exists()]
        if new == list(self.brokers):
            self.brokers[new[0]].start()
            stopped = stopped[1:]
        for node in stopped:
            self.brokers[node].begin_start()
        for node in stopped:
            self.brokers[node].await_start()
        self.await_serving()

    def add(self) -> int:
        """One more node, which joins; returns its id when it serves."""
        node = max(self.brokers) + 1
        self._plan(node)
        self.start(node)
        return node

    def start(self, node: int, *, wait: bool = True) -> None:
        """Start a node again on its data and port; returns when it serves.

        Without `wait`, when its process is there: without a majority of the voters no node serves.
        """
        broker = self.brokers[node]
        broker.begin_start()
        if wait:
            broker.await_start()
            self.await_serving(node)

    def stop(self, node: int) -> None:
        """Shut a node down cleanly."""
        self._paused.discard(node)
        self.brokers[node].stop()

    def kill(self, node: int) -> None:
        """kill -9."""
        self._paused.discard(node)
        self.brokers[node].kill()

    def restart(self, node: int) -> None:
        """Stop a node cleanly and start it again; returns when it serves."""
        self.stop(node)
        self.start(node)

    def pause(self, node: int) -> None:
        """SIGSTOP: a node that does nothing any more, and whose connections stay open."""
        self.brokers[node].pause()
        self._paused.add(node)

    def resume(self, node: int) -> None:
        """SIGCONT: let a paused node go on."""
        self._paused.discard(node)
        self.brokers[node].resume()

    def close(self) -> None:
        """Stop all nodes together, and remove the data if the folder was ours."""
        failures = []
        self._paused.clear()
        try:
            for broker in self.brokers.values():
                broker.begin_stop()
            for node, broker in self.brokers.items():
                try:
                    broker.await_stop()
                except BrokerError as error:
                    failures.append(f"node {node}: {error}")
        finally:
            self._kill_all()
            self._remove_data()
        if failures:
            raise BrokerError("; ".join(failures))

    # What it is like

    def members(self) -> ClusterMembers:
        """The brokers and the quorum, as a node that runs tells them."""
        with self.client() as client:
            return cluster_members(client)

    def controller(self) -> int:
        """The id of the node that leads the quorum; waits for one."""
        return self._until(
            lambda: self.members().quorum.leader_id, "no node has become the controller"
        )

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The id of the node that leads a partition; waits for one."""
        place = TopicPartition(topic, partition)

        def leader() -> int | None:
            with self.client() as client:
                return client.cluster.leader(place, refresh=True).node_id

        return self._until(leader, f"{place} has no leader")

    def await_serving(self, *nodes: int) -> None:
        """Wait until these nodes, or all that run, are registered and not fenced."""
        awaited = set(nodes or self.running) - self._paused
        voters = min(VOTERS_MAX, len(self.brokers)) if not nodes else 0

        def serves() -> bool:
            members = self.members()
            serving = {each.node_id for each in members.brokers if not each.is_fenced}
            return (
                members.quorum.leader_id is not None
                and awaited <= serving
                and len(members.quorum.voter_ids) >= voters
            )

        self._until(serves, f"nodes {sorted(awaited)} do not all serve")

    @contextmanager
    def client(self) -> Iterator[ClusterClient]:
        """Our own client of the nodes that are not paused; its calls fail after two seconds."""
        awake = [
            self.brokers[node].bootstrap_servers
            for node in self.running
            if node not in self._paused
        ]
        if not awake:
            raise BrokerError("no node of the cluster runs")
        with ClientCluster(",".join(awake), timeout_s=_ANSWER_TIMEOUT_S) as cluster:
            yield ClusterClient(cluster, _ANSWER_TIMEOUT_S)

    def _until(self, get: Callable[[], T | None], problem: str) -> T:
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        last: object = None
        while time.monotonic() < deadline:
            try:
                found = get()
            except ClientError as error:
                last = error
            else:
                if found is not None and found is not False:
                    return found
                last = "the cluster answers"
            time.sleep(_POLL_S)
        raise BrokerError(f"{problem} after {_SETTLE_TIMEOUT_S:g} s ({last})")

    def _plan(self, node: int) -> None:
        others = [broker.bootstrap_servers for broker in self.brokers.values()]
        self.data.mkdir(parents=True, exist_ok=True)
        settings = {**self._settings, "node.id": str(node)}
        if self._racks:
            settings["broker.rack"] = self._racks[(node - 1) % len(self._racks)]
        self.brokers[node] = Broker(
            mode="process",
            data=self.data / f"node-{node}",
            settings=settings,
            join=",".join(others),
            output=self._output(node),
        )

    def _output(self, node: int) -> Path:
        return self.data / f"node-{node}.log"

    def _kill_all(self) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()

    def _remove_data(self) -> None:
        if self._own_folder:
            shutil.rmtree(self.data, ignore_errors=True)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
