"""A cluster of processes in their namespaces: starting it, what it is like, and getting it well."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.cluster.clocks import WallClock
from tests.chaos.cluster.disks import Disk
from tests.chaos.cluster.hosts import Network
from tests.chaos.cluster.nodes import Node
from tests.chaos.cluster.servers import ClusterPlan, Server
from tidelog.client.cluster import Cluster, ClusterClient
from tidelog.client.cluster.cluster_state import (
    ClusterState,
    Health,
    cluster_members,
    cluster_state,
)
from tidelog.client.cluster.topics import Topics
from tidelog.errors import TidelogError

_ANSWER_TIMEOUT_S = 2.0
_POLL_S = 0.1
_START_TIMEOUT_S = 60.0


class NotWellError(TidelogError):
    """The cluster did not get where it must within its time."""


class ChaosCluster:
    """Nodes on the hosts of a network. `upgraded` is what an upgrade puts in the server's place."""

    def __init__(
        self,
        plan: ClusterPlan,
        server: Server,
        network: Network,
        disks: dict[int, Disk],
        outputs: Path,
        *,
        clock_library: Path | None = None,
        upgraded: Server | None = None,
    ) -> None:
        self.plan = plan
        self.network = network
        self._upgraded = upgraded
        outputs.mkdir(parents=True)
        self.nodes = {
            number: Node(
                number,
                network.hosts[number],
                disks[number],
                WallClock(outputs / f"node-{number}.clock", clock_library),
                server,
                outputs / f"node-{number}.log",
            )
            for number in plan.node_ids
        }

    def start(self) -> None:
        """All nodes, for the first time; returns when all serve."""
        for node in self.nodes.values():
            node.start()
        try:
            self.await_health(_START_TIMEOUT_S)
        except NotWellError as error:
            printed = "\n".join(
                f"node {number}: {node.last_words()}" for number, node in self.nodes.items()
            )
            self.close()
            raise NotWellError(f"{error}\n{printed}") from None

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def upgrade(self) -> None:
        """Nodes that start from now on are of the new version."""
        if self._upgraded is not None:
            for node in self.nodes.values():
                node.server = self._upgraded

    def heal(self) -> list[str]:
        """End everything that disturbs it, and start what does not run.

        Returns a sentence for each node that had ended by itself.
        """
        self.network.heal()
        endings = []
        for number, node in self.nodes.items():
            node.disk.make_room()
            node.clock.set_offset(0)
            node.resume()
            status = node.ended_by_itself
            if status is not None:
                endings.append(f"node {number} ended by itself with status {status}")
            if not node.is_running:
                node.start()
        return endings

    # What it is like

    @contextmanager
    def client(self) -> Iterator[ClusterClient]:
        with Cluster(self.plan.bootstrap, timeout_s=_ANSWER_TIMEOUT_S) as cluster:
            yield ClusterClient(cluster, _ANSWER_TIMEOUT_S)

    @contextmanager
    def topics(self) -> Iterator[Topics]:
        with Cluster(self.plan.bootstrap, timeout_s=10) as cluster:
            yield Topics(ClusterClient(cluster, 30))

    def state(self) -> ClusterState:
        with self.client() as client:
            return cluster_state(client)

    def controller(self) -> int | None:
        """Who leads the quorum, None when nobody tells."""
        try:
            with self.client() as client:
                return cluster_members(client).quorum.leader_id
        except TidelogError:
            return None

    def epochs(self) -> dict[tuple[str, int], int]:
        """The leader epochs of all partitions, and of the quorum; none when nobody tells."""
        try:
            with self.client() as client:
                found = {("quorum", 0): cluster_members(client).quorum.leader_epoch}
                for topic in client.metadata().topics:
                    for row in topic.partitions:
                        found[topic.name or "", row.partition_index] = row.leader_epoch
                return found
        except TidelogError:
            return {}

    def await_health(self, timeout_s: float) -> float:
        """Wait until nothing is missing; returns how long that took in seconds."""
        began = time.monotonic()

        def is_well() -> bool:
            state = self.state()
            members = state.members
            return (
                state.health is Health.HEALTHY
                and len(members.brokers) == self.plan.nodes
                and len(members.quorum.voter_ids) == self.plan.voters
            )

        self._until(is_well, timeout_s, "the cluster is not healthy")
        return time.monotonic() - began

    def await_serving(self, number: int, timeout_s: float) -> bool:
        """Wait for a node to be registered and not fenced; False when it is not by then."""

        def serves() -> bool:
            with self.client() as client:
                broker = cluster_members(client).broker(number)
            return broker is not None and not broker.is_fenced

        try:
            self._until(serves, timeout_s, f"node {number} does not serve")
        except NotWellError:
            return False
        return True

    def keep(self, folder: Path) -> None:
        """Copy the data of all nodes, which must not run, for whoever looks for the cause."""
        for number, node in self.nodes.items():
            shutil.copytree(node.disk.path, folder / f"node-{number}", dirs_exist_ok=True)

    def _until(self, is_so: Callable[[], bool], timeout_s: float, problem: str) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                if is_so():
                    return
            except TidelogError:
                pass  # the sentence below says what is wrong at the end
            time.sleep(_POLL_S)
        raise NotWellError(f"{problem} after {timeout_s:g} s: {self.picture()}")

    def picture(self) -> str:
        """What is not as it should be, in one line."""
        try:
            state = self.state()
        except TidelogError as error:
            return str(error)
        members = state.members
        fenced = [each.node_id for each in members.brokers if each.is_fenced]
        silent = [each.node_id for each in members.quorum.replicas if each.is_silent]

        def some(partitions: list[object]) -> str:
            return f"{len(partitions)} ({', '.join(map(str, partitions[:4]))})"

        return (
            f"quorum {members.quorum.voter_ids} led by {members.quorum.leader_id}, "
            f"silent {silent}; "
            f"brokers {[each.node_id for each in members.brokers]}, fenced {fenced}; "
            f"offline {some([*state.offline])}, under min ISR {some([*state.under_min_isr])}, "
            f"under-replicated {some([*state.under_replicated])}"
        )
