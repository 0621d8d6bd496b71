"""One seed of a cluster from beginning to end: nodes, clients, faults, and what must hold.

The cluster is formed in peace. Then there are faults for a while, of nodes one by one and of the
network between them. Then they stop, and within a bounded time every node must serve, every
partition must have a leader and all its replicas in sync. Perhaps the disk of one is full from then
on. From there on every call is answered, all clients come to their end, and the whole history is
checked.
"""

from __future__ import annotations

import traceback
from random import Random

from tidelog.cluster.metadata.image import NO_LEADER, MetadataImage
from tidelog.protocol.uuids import format_uuid
from tidelog.raft.voters import VoterNode
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.cluster.cluster_faults import ClusterFaults
from tidelog.testing.simulation.cluster.invariants import ClusterInvariants
from tidelog.testing.simulation.cluster.minority import WAYS, all_links, draw_minority, waits_for
from tidelog.testing.simulation.cluster.operators import Operators
from tidelog.testing.simulation.cluster.options import ClusterOptions, NodeFaults
from tidelog.testing.simulation.cluster.routing import ClusterRouter
from tidelog.testing.simulation.disk import DiskFaults
from tidelog.testing.simulation.fault_events import FaultEvents
from tidelog.testing.simulation.fault_schedule import FaultSchedule
from tidelog.testing.simulation.host import HostFaults
from tidelog.testing.simulation.network import Network, NetworkFaults
from tidelog.testing.simulation.node import DATA, SimulatedNode
from tidelog.testing.simulation.result import Result
from tidelog.testing.simulation.simulation import MS_US, SECOND_US, NoEndInSight, Simulation
from tidelog.testing.simulation.workbench import Workbench
from tidelog.testing.simulation.workloads.asking import GROUP, TRANSACTION, find_coordinator
from tidelog.testing.simulation.workloads.compaction import Compaction
from tidelog.testing.simulation.workloads.groups import Groups
from tidelog.testing.simulation.workloads.long_polls import LongPolls
from tidelog.testing.simulation.workloads.lossy_topics import LossyTopics
from tidelog.testing.simulation.workloads.plain_sends import PlainSends
from tidelog.testing.simulation.workloads.records import Records
from tidelog.testing.simulation.workloads.setting_changes import SettingChanges
from tidelog.testing.simulation.workloads.transactions import Transactions
from tidelog.testing.simulation.workloads.workload import DrawnWorkload
from tidelog.testing.simulation.workloads.workspace import Workspace
from tidelog.world.network import Address

_WORKLOADS: tuple[type[DrawnWorkload], ...] = (
    Records,
    Transactions,
    Groups,
    Compaction,
    PlainSends,
    LossyTopics,
)
CLUSTER_ID = format_uuid(b"simulatedcluster")
_MAY_TAKE_LONG = frozenset({"JoinGroupRequest", "SyncGroupRequest"})
_FORMED_S_MAX = 20
_WELL_S_MAX = 20
"""So long may it take until a cluster has formed, and until it is well when faults have ended."""
_LED_BY_OTHERS_S = 3
"""So long after a disk is full calls may wait for others to lead, and to go on without it."""
_NEVER_US = 1 << 60


class ClusterScenario:
    """Run one with `run_cluster`."""

    def __init__(
        self, seed: int, *, keeps_trace: bool = False, without: frozenset[int] = frozenset()
    ) -> None:
        """`without` are the numbers of fault events that are left out."""
        self.simulation = simulation = Simulation(seed, keeps_trace=keeps_trace)
        self.options = options = ClusterOptions.draw(
            simulation.random("cluster options"),
            simulation.random("more cluster options"),
            simulation.random("situations"),
        )
        self.events = FaultEvents(simulation, without)
        simulation.trace("scenario", f"seed {seed}: {options}")
        self.network = Network(simulation)
        self.nodes: list[SimulatedNode] = []
        self.node_faults: list[FaultSchedule] = []
        self._disk_faults: list[NodeFaults] = []
        self._absent: set[str] = set()
        """Nodes that are not there yet, or not any more."""
        self._away: set[str] = set()
        """Nodes that are gone for good, or until they are needed."""
        self._cut_off: set[str] = set()
        """Those of them that nobody reaches, clients that begin later included."""
        self.failures: list[str] = []
        self.invariants = ClusterInvariants(simulation, self.nodes, self._problem)
        for node_id in range(1, options.nodes_max + 1):
            self._make_node(node_id)
        self._absent.update(node.name for node in self.nodes[options.nodes :])
        self.cluster_faults = ClusterFaults(
            simulation,
            self.network,
            self.nodes[: options.nodes],
            options,
            self.events,
            self.invariants,
        )
        self.operators = Operators(simulation, self, self._make_client, options, self.events)
        self.cluster_faults.on_held = self.operators.change_leader
        self.bench = Workbench(simulation, self._world_has_failed)
        for kind in _WORKLOADS:
            if kind.is_drawn(options.work):
                self.bench.workloads.append(kind(self._make_workspace(), options.work))
        if options.changes_settings:
            self.bench.workloads.append(SettingChanges(self._make_workspace()))
        self.bench.workloads.append(
            LongPolls(self._make_workspace(), leaders_may_lack_room=options.keeps_disk_full)
        )
        self._well_since_us = _NEVER_US

    def _make_node(self, node_id: int) -> None:
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
        skew_ms = options.clock_skew_ms_max
        node.host.clock_skew_ms = simulation.random(f"{name}/clock").randint(-skew_ms, skew_ms)
        node.on_turn = lambda: self.invariants.check(node)
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
                events=self.events,
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
        for node in self.present():
            if not node.start():
                self.failures.append(f"the first start of {node.name} failed: {node.start_error}")
                return
        bench = self.bench
        if self.options.grows_internal_topics:
            # The coordinators' topics are made while there is one broker, or two.
            client = self._make_client("early")
            for key_type in (GROUP, TRANSACTION):
                client.start(find_coordinator(client, "early", key_type))
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
        if self._away:
            self.simulation.count("runs without a minority")
        self.simulation.trace("scenario", "the cluster is well")
        if self.options.keeps_disk_full:
            now_us = self.simulation.now_us
            self.events.at(now_us, "nodes", "a disk that stays full", self._fill_disk)
            self.simulation.run_until(
                now_us + _LED_BY_OTHERS_S * SECOND_US, unless=bench.has_failed
            )
        self._well_since_us = self.simulation.now_us
        bench.finish()

    # Faults

    def _begin_faults(self) -> None:
        now_us = self.simulation.now_us
        self.events.at(now_us, "network", "connections that stall, drip and break", self._worsen)
        for node, faults, schedule in zip(
            self.nodes, self._disk_faults, self.node_faults, strict=True
        ):
            if node.name in self._absent:
                continue
            self._slow_down(node, faults, now_us)
            schedule.arrange(begin_us=now_us)
        self.cluster_faults.arrange(now_us)
        self.operators.arrange(now_us)

    def _worsen(self, _: Random) -> None:
        work = self.options.work
        self.network.faults = NetworkFaults(
            slow=work.slow_network,
            drips=work.dripping_network / 4,
            stalls=work.stalling_network,
            cut_later=work.cutting_network / 2,
            small_window=work.small_windows / 4,
        )

    def _slow_down(self, node: SimulatedNode, faults: NodeFaults, now_us: int) -> None:
        options = faults.options
        node.disk.faults = DiskFaults(torn_sector=0.15)

        def slow_down(_: Random) -> None:
            node.disk.faults = DiskFaults(short_write=options.short_writes, torn_sector=0.15)
            node.host.faults = HostFaults(
                late_jobs=options.late_jobs, late_turns=options.late_turns
            )

        self.events.at(now_us, node.name, "late jobs and turns, short writes", slow_down)

    def _end_faults(self) -> None:
        self.simulation.trace("faults", "end")
        self.network.end_faults()
        self.cluster_faults.end()
        if self.options.loses_minority:
            self.events.at(
                self.simulation.now_us, "nodes", "a minority is gone", self._lose_minority
            )
            # Of this instant, before any node is started again.
            self.simulation.run_until(self.simulation.now_us)
        for node, schedule in zip(self.nodes, self.node_faults, strict=True):
            if node.name not in self._absent:
                schedule.end()

    def _lose_minority(self, random: Random) -> None:
        """Some nodes do not come back."""
        candidates = [node for node in self.present() if node.node_id <= self.options.nodes]
        voters = [voter.key.id for voter in self.voters()]
        image = self.newest_image()
        for node in draw_minority(random, candidates, voters, image):
            way = random.choice(WAYS)
            self.simulation.count(f"nodes that are {way} for good")
            self.simulation.trace(node.name, f"is {way} for good")
            self._away.add(node.name)
            self.node_faults[self.nodes.index(node)].retire()
            if way == "dead":
                if node.is_alive:
                    node.kill()
            elif way == "frozen":
                self._freeze(node)
            names = [*(each.name for each in self.nodes), *(c.name for c in self.bench.clients)]
            if way == "cut off":
                self._cut_off.add(node.name)
                self.network.links.block(all_links(node, names))
        self._tell_who_is_unreachable()

    def _fill_disk(self, random: Random) -> None:
        node = random.choice([node for node in self.present() if node.name not in self._away])
        room_bytes = random.choice((0, 500, 5_000, 50_000))
        self.simulation.count("disks that stay full")
        self.simulation.trace(node.name, f"keeps {room_bytes} bytes of room on its disk")
        node.disk.space_bytes = node.disk.used_bytes + room_bytes

    def _freeze(self, node: SimulatedNode) -> None:
        if node.name in self._away:
            node.host.pause(2 * SECOND_US)
            self.simulation.after(SECOND_US, lambda: self._freeze(node))

    def _needs_minority(self, image: MetadataImage, away: set[int]) -> bool:
        """Whether a partition is rightly without a leader: one that was in sync when the minority
        was drawn has come back from a power cut, and only who is away has everything."""
        return any(
            row.leader == NO_LEADER and (needed := waits_for(row)) and needed <= away
            for topic in image.topics_by_name.values()
            for row in topic.partitions
        )

    def _bring_minority_back(self) -> None:
        self.simulation.count("minorities that were needed")
        for node, schedule in zip(self.nodes, self.node_faults, strict=True):
            if node.name in self._away:
                self.simulation.trace(node.name, "is needed and comes back")
                node.host.resume()
                schedule.come_back()
        self.network.links.heal()
        self._cut_off.clear()
        self._away.clear()
        self._tell_who_is_unreachable()

    def _tell_who_is_unreachable(self) -> None:
        unreachable = self._unreachable()
        for client in self.bench.clients:
            client.unreachable = unreachable

    def _unreachable(self) -> frozenset[Address]:
        """Who is gone, or is not there yet."""
        gone = self._away | self._absent
        return frozenset(node.address for node in self.nodes if node.name in gone)

    # What operators need of it

    def present(self) -> list[SimulatedNode]:
        return [node for node in self.nodes if node.name not in self._absent]

    def newest_image(self) -> MetadataImage:
        images = [node.node.image for node in self.present() if node.node is not None]
        return max(images, key=lambda image: image.offset)

    def voters(self) -> list[VoterNode]:
        """As the node with the newest metadata has them."""
        nodes = [node.node for node in self.present() if node.node is not None]
        return list(max(nodes, key=lambda node: node.image.offset).metadata.quorum.voters)

    def add_node(self) -> SimulatedNode | None:
        for node in self.nodes[self.options.nodes :]:
            if node.name in self._absent and not node.lives:
                self._absent.discard(node.name)
                node.start()
                return node
        return None

    def retire(self, node: SimulatedNode) -> None:
        self.node_faults[self.nodes.index(node)].retire()
        self._absent.add(node.name)
        self._tell_who_is_unreachable()
        if node.is_alive:
            node.stop()

    # The clients

    def _make_workspace(self) -> Workspace:
        return Workspace(
            self._make_client,
            replication_factor=self.options.replication_factor,
            may_be_lost=self.invariants.was_lost,
        )

    def _make_client(self, name: str) -> SimulatedClient:
        client = SimulatedClient(self.simulation, self.network, name, self.nodes[0].address)
        client.router = ClusterRouter(client, [node.address for node in self.present()])
        client.on_timeout = lambda request, begun_us: self._timed_out(client, request, begun_us)
        client.unreachable = self._unreachable()
        for node_name in self._cut_off:
            self.network.links.block([(node_name, name), (name, node_name)])
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
        remaining = [node for node in self.present() if node.name not in self._away]
        for node in remaining:
            if not node.is_alive or node.node is None:
                found.append(f"{node.name} is down")
            elif not node.node.is_ready:
                found.append(f"{node.name} does not serve")
            elif not self._voters_are_complete(node):
                found.append(f"{node.name} does not know of all voters")
        if not found:
            newest = self.newest_image()
            away = {node.node_id for node in self.nodes if node.name in self._away}
            if self._needs_minority(newest, away):
                self._bring_minority_back()
                return "the minority is needed after all"
            found = [*self._unwell_brokers(newest), *_unwell_partitions(newest, away)]
        return "; ".join(found)

    def _unwell_brokers(self, image: MetadataImage) -> list[str]:
        found = []
        for node in self.present():
            broker = image.brokers.get(node.node_id)
            is_active = broker is not None and broker.is_active
            if is_active and node.name in self._away:
                found.append(f"{node.name} is gone and not fenced")
            elif not is_active and node.name not in self._away:
                found.append(f"{node.name} is fenced or not registered")
        return found

    def _voters_are_complete(self, node: SimulatedNode) -> bool:
        assert node.node is not None
        options = self.options
        expected = options.nodes
        if not options.has_static_voters:
            # Who is drained loses its vote, and nobody has to take its place.
            expected = min(options.voters, options.nodes) - options.removed_nodes
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
            faults=self.events.struck(),
            counts={
                **counts,
                "lives": sum(node.lives for node in self.nodes),
                "comparisons": self.invariants.comparisons,
                **self.simulation.counts,
            },
        )


def _unwell_partitions(image: MetadataImage, away: set[int]) -> list[str]:
    found = []
    for name, topic in sorted(image.topics_by_name.items()):
        for index, row in enumerate(topic.partitions):
            if row.leader == NO_LEADER:
                found.append(f"{name}-{index} has no leader: in sync {row.isr} of {row.replicas}")
            elif row.is_reassigning:
                found.append(f"{name}-{index} still moves: {row.replicas}")
            elif set(row.isr) != set(row.replicas) - away:
                found.append(
                    f"{name}-{index}, which node {row.leader} leads in epoch {row.leader_epoch}, "
                    f"has {row.isr} in sync of {row.replicas}"
                )
    return found


def run_cluster(
    seed: int, *, keeps_trace: bool = False, without: frozenset[int] = frozenset()
) -> Result:
    """Runs one seed; what is wrong is in the result's failures."""
    return ClusterScenario(seed, keeps_trace=keeps_trace, without=without).run()
