"""One seed of a cluster from beginning to end: nodes, clients, faults, and what must hold.

The cluster is formed in peace. Then there are faults for a while, of nodes one by one and of the
network between them. Then they stop, and within a bounded time every node must serve, every
partition must have a leader and all its replicas in sync. From there on every call is answered, all
clients come to their end, and the whole history is checked.
"""

from __future__ import annotations

import traceback

from tidelog.cluster.metadata.image import NO_LEADER, MetadataImage
from tidelog.protocol.uuids import format_uuid
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.cluster.cluster_faults import ClusterFaults
from tidelog.testing.simulation.cluster.invariants import ClusterInvariants
from tidelog.testing.simulation.cluster.options import ClusterOptions, NodeFaults
from tidelog.testing.simulation.cluster.routing import ClusterRouter
from tidelog.testing.simulation.disk import DiskFaults
from tidelog.testing.simulation.fault_schedule import FaultSchedule
from tidelog.testing.simulation.host import HostFaults
from tidelog.testing.simulation.network import Network, NetworkFaults
from tidelog.testing.simulation.node import DATA, SimulatedNode
from tidelog.testing.simulation.result import Result
from tidelog.testing.simulation.simulation import MS_US, SECOND_US, NoEndInSight, Simulation
from tidelog.testing.simulation.workbench import Workbench
from tidelog.testing.simulation.workloads.compaction import Compaction
from tidelog.testing.simulation.workloads.groups import Groups
from tidelog.testing.simulation.workloads.long_polls import LongPolls
from tidelog.testing.simulation.workloads.plain_sends import PlainSends
from tidelog.testing.simulation.workloads.records import Records
from tidelog.testing.simulation.workloads.transactions import Transactions
from tidelog.testing.simulation.workloads.workload import DrawnWorkload
from tidelog.testing.simulation.workloads.workspace import Workspace

_WORKLOADS: tuple[type[DrawnWorkload], ...] = (
    Records,
    Transactions,
    Groups,
    Compaction,
    PlainSends,
)
CLUSTER_ID = format_uuid(b"simulatedcluster")
_MAY_TAKE_LONG = frozenset({"JoinGroupRequest", "SyncGroupRequest"})
_FORMED_S_MAX = 20
_WELL_S_MAX = 20
"""So long may it take until a cluster has formed, and until it is well when faults have ended."""
_NEVER_US = 1 << 60


class ClusterScenario:
    """Run one with `run_cluster`."""

    def __init__(self, seed: int, *, keeps_trace: bool = False) -> None:
        self.simulation = simulation = Simulation(seed, keeps_trace=keeps_trace)
        self.options = options = ClusterOptions.draw(simulation.random("cluster options"))
        simulation.trace("scenario", f"seed {seed}: {options}")
        self.network = Network(simulation)
        self.nodes: list[SimulatedNode] = []
        self.node_faults: list[FaultSchedule] = []
        self._disk_faults: list[NodeFaults] = []
        for node_id in range(1, options.nodes + 1):
            self._add_node(node_id)
        self.cluster_faults = ClusterFaults(simulation, self.network, self.nodes, options)
        self.failures: list[str] = []
        self.invariants = ClusterInvariants(simulation, self.nodes, self._problem)
        for node in self.nodes:
            node.on_turn = lambda node=node: self.invariants.check(node)  # type: ignore[misc]
        self.bench = Workbench(simulation, self._world_has_failed)
        for kind in _WORKLOADS:
            if kind.is_drawn(options.work):
                self.bench.workloads.append(kind(self._make_workspace(), options.work))
        self.bench.workloads.append(LongPolls(self._make_workspace()))
        self._well_since_us = _NEVER_US

    def _add_node(self, node_id: int) -> None:
        simulation, options = self.simulation, self.options
        name = f"node-{node_id}"
        faults = NodeFaults.draw(simulation.random(f"{name}/faults"), options.work.duration_s)
        simulation.trace("scenario", f"{name}: {faults.options}; {faults.fault_options}")
        node = SimulatedNode(
            simulation,
            self.network,
            name,
            settings={"cluster.id": CLUSTER_ID, **options.node_settings(node_id)},
            log_directories=[
                f"{DATA}/{number}" for number in range(faults.fault_options.log_directories)
            ],
            store_options=faults.fault_options.store_options,
        )
        self.nodes.append(node)
        self._disk_faults.append(faults)
        self.node_faults.append(
            FaultSchedule(
                simulation,
                node,
                faults.options,
                faults.fault_options,
                purpose=f"{name}/schedule",
                down_us_max=options.down_ms_max * MS_US,
            )
        )

    def run(self) -> Result:
        """Everything, from the first start to the last check."""
        try:
            self._run()
        except (Exception, NoEndInSight):  # noqa: BLE001  whatever it is, the seed has failed
            self.failures.append(traceback.format_exc())
        return self._result()

    def _run(self) -> None:
        for node in self.nodes:
            if not node.start():
                self.failures.append(f"the first start of {node.name} failed: {node.start_error}")
                return
        bench = self.bench
        bench.wait_for(
            "the cluster to form",
            lambda: not self._unwell(),
            is_stuck=self._unwell,
            seconds_max=_FORMED_S_MAX,
        )
        if bench.has_failed():
            return
        self.simulation.trace("scenario", "the cluster has formed")
        self._begin_faults()
        bench.start()
        end_us = self.simulation.now_us + int(self.options.work.duration_s * SECOND_US)
        self.simulation.run_until(end_us, unless=bench.has_failed)
        if bench.has_failed():
            return
        self._end_faults()
        bench.wait_for(
            "the cluster to get well",
            lambda: not self._unwell(),
            is_stuck=self._unwell,
            seconds_max=_WELL_S_MAX,
        )
        if bench.has_failed():
            return
        self.simulation.trace("scenario", "the cluster is well")
        self._well_since_us = self.simulation.now_us
        bench.finish()

    # Faults

    def _begin_faults(self) -> None:
        work = self.options.work
        self.network.faults = NetworkFaults(
            slow=work.slow_network,
            drips=work.dripping_network / 4,
            stalls=work.stalling_network,
            cut_later=work.cutting_network / 2,
            small_window=work.small_windows / 4,
        )
        now_us = self.simulation.now_us
        for node, faults, schedule in zip(
            self.nodes, self._disk_faults, self.node_faults, strict=True
        ):
            options = faults.options
            node.disk.faults = DiskFaults(short_write=options.short_writes, torn_sector=0.15)
            node.host.faults = HostFaults(
                late_jobs=options.late_jobs, late_turns=options.late_turns
            )
            schedule.arrange(begin_us=now_us)
        self.cluster_faults.arrange(now_us)

    def _end_faults(self) -> None:
        self.simulation.trace("faults", "end")
        self.network.end_faults()
        self.cluster_faults.end()
        for schedule in self.node_faults:
            schedule.end()

    # The clients

    def _make_workspace(self) -> Workspace:
        return Workspace(self._make_client, replication_factor=self.options.replication_factor)

    def _make_client(self, name: str) -> SimulatedClient:
        client = SimulatedClient(self.simulation, self.network, name, self.nodes[0].address)
        client.router = ClusterRouter(client, [node.address for node in self.nodes])
        client.on_timeout = lambda request, begun_us: self._timed_out(client, request, begun_us)
        self.bench.clients.append(client)
        return client

    # What must hold

    def _problem(self, what: str) -> None:
        self.simulation.trace("invariants", what)
        self.failures.append(what)

    def _world_has_failed(self) -> bool:
        return bool(
            self.failures
            or any(node.bugs for node in self.nodes)
            or any(schedule.failures for schedule in self.node_faults)
        )

    def _timed_out(self, client: SimulatedClient, request: str, begun_us: int) -> None:
        """A call that began when all was well is answered in time."""
        if begun_us >= self._well_since_us and request not in _MAY_TAKE_LONG:
            client.problem(f"no answer to a {request} within {client.timeout_s:g} s")

    def _unwell(self) -> str:
        """What keeps the cluster from being well; nothing when it is."""
        found = []
        for node in self.nodes:
            if not node.is_alive or node.node is None:
                found.append(f"{node.name} is down")
            elif not node.node.is_ready:
                found.append(f"{node.name} does not serve")
            elif not self._voters_are_complete(node):
                found.append(f"{node.name} does not know of all voters")
        if not found:
            images = [node.node.image for node in self.nodes if node.node is not None]
            newest = max(images, key=lambda image: image.offset)
            found = [*self._unwell_brokers(newest), *_unwell_partitions(newest)]
        return "; ".join(found)

    def _unwell_brokers(self, image: MetadataImage) -> list[str]:
        return [
            f"{node.name} is fenced or not registered"
            for node in self.nodes
            if node.node_id not in image.brokers or not image.brokers[node.node_id].is_active
        ]

    def _voters_are_complete(self, node: SimulatedNode) -> bool:
        assert node.node is not None
        options = self.options
        expected = options.nodes
        if not options.has_static_voters:
            expected = min(options.voters, options.nodes)
        return len(node.node.metadata.quorum.voters) >= expected

    def _result(self) -> Result:
        counts = self.bench.counts()
        self.simulation.trace("scenario", f"acknowledged {counts['acknowledged']}")
        return Result(
            seed=self.simulation.seed,
            options=str(self.options),
            failures=[
                *self.failures,
                *(each for schedule in self.node_faults for each in schedule.failures),
                *self.bench.failures,
                *(f"{node.name}: {bug}" for node in self.nodes for bug in node.bugs),
            ],
            trace_digest=self.simulation.trace_digest(),
            trace=self.simulation.lines or [],
            simulated_s=self.simulation.now_us / SECOND_US,
            events=self.simulation.events_run,
            counts={
                **counts,
                "lives": sum(node.lives for node in self.nodes),
                "comparisons": self.invariants.comparisons,
                **self.simulation.counts,
            },
        )


def _unwell_partitions(image: MetadataImage) -> list[str]:
    found = []
    for name, topic in sorted(image.topics_by_name.items()):
        for index, row in enumerate(topic.partitions):
            if row.leader == NO_LEADER:
                found.append(f"{name}-{index} has no leader: in sync {row.isr} of {row.replicas}")
            elif set(row.isr) != set(row.replicas):
                found.append(
                    f"{name}-{index}, which node {row.leader} leads in epoch {row.leader_epoch}, "
                    f"has {row.isr} in sync of {row.replicas}"
                )
    return found


def run_cluster(seed: int, *, keeps_trace: bool = False) -> Result:
    """Runs one seed; what is wrong is in the result's failures."""
    return ClusterScenario(seed, keeps_trace=keeps_trace).run()
