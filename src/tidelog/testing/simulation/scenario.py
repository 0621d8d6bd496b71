"""One seed from beginning to end: a node, clients, faults, and what must hold.

The seed draws everything: how many clients of which kind, which faults and how often, when the node
is killed or loses power. First there are faults for a while; then they stop, and everything that is
under way must come to an end (liveness): a fault that heals by itself would hide a request that is
stuck for ever. In the end all partitions are read and the whole history is checked.
"""

from __future__ import annotations

import traceback

from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.disk import DiskFaults
from tidelog.testing.simulation.fault_options import FaultOptions
from tidelog.testing.simulation.fault_schedule import FaultSchedule
from tidelog.testing.simulation.host import HostFaults
from tidelog.testing.simulation.network import Network, NetworkFaults
from tidelog.testing.simulation.node import DATA, SimulatedNode
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.result import Result
from tidelog.testing.simulation.simulation import SECOND_US, NoEndInSight, Simulation
from tidelog.testing.simulation.workbench import Workbench
from tidelog.testing.simulation.workloads.compaction import Compaction
from tidelog.testing.simulation.workloads.groups import Groups
from tidelog.testing.simulation.workloads.long_polls import LongPolls
from tidelog.testing.simulation.workloads.plain_sends import PlainSends
from tidelog.testing.simulation.workloads.records import Records
from tidelog.testing.simulation.workloads.rude_clients import RudeClients
from tidelog.testing.simulation.workloads.topic_changes import TopicChanges
from tidelog.testing.simulation.workloads.transactions import Transactions
from tidelog.testing.simulation.workloads.workload import DrawnWorkload
from tidelog.testing.simulation.workloads.workspace import Workspace

_WORKLOADS: tuple[type[DrawnWorkload], ...] = (
    Records,
    Transactions,
    Groups,
    Compaction,
    PlainSends,
    TopicChanges,
)
_MAY_TAKE_LONG = frozenset({"JoinGroupRequest", "SyncGroupRequest"})


class Scenario:
    """Run one with `run_seed`."""

    def __init__(self, seed: int, *, keeps_trace: bool = False) -> None:
        self.simulation = simulation = Simulation(seed, keeps_trace=keeps_trace)
        self.options = options = Options.draw(simulation.random("options"))
        self.fault_options = FaultOptions.draw(simulation.random("fault options"))
        simulation.trace("scenario", f"seed {seed}: {options}")
        simulation.trace("scenario", f"faults: {self.fault_options}")
        self.network = Network(
            simulation,
            NetworkFaults(
                slow=options.slow_network,
                drips=options.dripping_network,
                stalls=options.stalling_network,
                cut_later=options.cutting_network,
                small_window=options.small_windows,
                late_lookups=self.fault_options.late_lookups,
                failed_lookups=self.fault_options.failed_lookups,
            ),
        )
        self.node = SimulatedNode(
            simulation,
            self.network,
            "node-1",
            settings=options.node_settings(),
            disk_faults=DiskFaults(short_write=options.short_writes, torn_sector=0.15),
            host_faults=HostFaults(late_jobs=options.late_jobs, late_turns=options.late_turns),
            log_directories=[
                f"{DATA}/{number}" for number in range(self.fault_options.log_directories)
            ],
            store_options=self.fault_options.store_options,
        )
        self.faults = FaultSchedule(simulation, self.node, options, self.fault_options)
        self.bench = Workbench(simulation, lambda: bool(self.faults.failures or self.node.bugs))
        self.bench.workloads += [
            kind(Workspace(self._make_client), options)
            for kind in _WORKLOADS
            if kind.is_drawn(options)
        ]
        self.bench.workloads.append(LongPolls(Workspace(self._make_client)))
        if self.fault_options.rude_clients:
            workspace = Workspace(self._make_client)
            self.bench.workloads.append(RudeClients(workspace, self.fault_options.rude_clients))
        self.failures: list[str] = []

    def run(self) -> Result:
        """Everything, from the first start to the last check."""
        try:
            self._run()
        except (Exception, NoEndInSight):  # noqa: BLE001  whatever it is, the seed has failed
            self.failures.append(traceback.format_exc())
        return self._result()

    def _run(self) -> None:
        simulation, options = self.simulation, self.options
        if not self.node.start():
            self.failures.append(f"the first start failed: {self.node.start_error}")
            return
        self.bench.start()
        self.faults.arrange()
        simulation.run_until(int(options.duration_s * SECOND_US), unless=self.bench.has_failed)
        if self.bench.has_failed():
            return
        simulation.trace("faults", "end")
        self.network.end_faults()
        self.faults.end()
        self.bench.finish()

    # The clients

    def _make_client(self, name: str) -> SimulatedClient:
        client = SimulatedClient(self.simulation, self.network, name, self.node.address)
        client.on_timeout = lambda request, begun_us: self._timed_out(client, request, begun_us)
        self.bench.clients.append(client)
        return client

    # What must hold

    def _timed_out(self, client: SimulatedClient, request: str, begun_us: int) -> None:
        """A call that began when all was well is answered in time."""
        well_since_us = max(self.faults.over_since_us, self.node.up_since_us)
        if self.node.is_alive and begun_us >= well_since_us and request not in _MAY_TAKE_LONG:
            client.problem(f"no answer to a {request} within {client.timeout_s:g} s")

    def _result(self) -> Result:
        counts = self.bench.counts()
        self.simulation.trace("scenario", f"acknowledged {counts['acknowledged']}")
        return Result(
            seed=self.simulation.seed,
            options=f"{self.options}; faults: {self.fault_options}",
            failures=[
                *self.failures,
                *self.faults.failures,
                *self.bench.failures,
                *self.node.bugs,
            ],
            trace_digest=self.simulation.trace_digest(),
            trace=self.simulation.lines or [],
            simulated_s=self.simulation.now_us / SECOND_US,
            events=self.simulation.events_run,
            counts={
                **counts,
                "lives": self.node.lives,
                **self.simulation.counts,
            },
        )


def run_seed(seed: int, *, keeps_trace: bool = False) -> Result:
    """Runs one seed; what is wrong is in the result's failures."""
    return Scenario(seed, keeps_trace=keeps_trace).run()
