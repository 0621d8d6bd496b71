"""One seed from beginning to end: a node, clients, faults, and what must hold.

The seed draws everything: how many clients of which kind, which faults and how often, when the node
is killed or loses power. First there are faults for a while; then they stop, and everything that is
under way must come to an end (liveness): a fault that heals by itself would hide a request that is
stuck for ever. In the end all partitions are read and the whole history is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.testing.history import Outcome
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.disk import DiskFaults
from tidelog.testing.simulation.fault_schedule import FaultSchedule
from tidelog.testing.simulation.host import HostFaults
from tidelog.testing.simulation.network import Network, NetworkFaults
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.simulation import SECOND_US, Simulation
from tidelog.testing.simulation.workloads.compaction import Compaction
from tidelog.testing.simulation.workloads.groups import Groups
from tidelog.testing.simulation.workloads.plain_sends import PlainSends
from tidelog.testing.simulation.workloads.records import Records
from tidelog.testing.simulation.workloads.topic_changes import TopicChanges
from tidelog.testing.simulation.workloads.transactions import Transactions
from tidelog.testing.simulation.workloads.workload import Workload
from tidelog.testing.simulation.workloads.workspace import Workspace

_WORKLOADS: tuple[type[Workload], ...] = (
    Records,
    Transactions,
    Groups,
    Compaction,
    PlainSends,
    TopicChanges,
)
_SETTLE_S_MAX = 60
"""So long may it take until everything has come to its end once the faults have stopped."""


@dataclass(slots=True)
class Result:
    """What became of one seed."""

    seed: int
    options: Options
    failures: list[str]
    trace_digest: str
    trace: list[str]
    simulated_s: float
    events: int
    acknowledged: int
    polled: int
    lives: int

    @property
    def is_good(self) -> bool:
        return not self.failures


class Scenario:
    """Run one with `run_seed`."""

    def __init__(self, seed: int, *, keeps_trace: bool = False) -> None:
        self.simulation = simulation = Simulation(seed, keeps_trace=keeps_trace)
        self.options = options = Options.draw(simulation.random("options"))
        simulation.trace("scenario", f"seed {seed}: {options}")
        self.network = Network(
            simulation,
            NetworkFaults(
                slow=options.slow_network,
                drips=options.dripping_network,
                stalls=options.stalling_network,
                cut_later=options.cutting_network,
                small_window=options.small_windows,
            ),
        )
        self.node = SimulatedNode(
            simulation,
            self.network,
            "node-1",
            settings=options.node_settings(),
            disk_faults=DiskFaults(short_write=options.short_writes, torn_sector=0.05),
            host_faults=HostFaults(late_jobs=options.late_jobs, late_turns=options.late_turns),
        )
        self.faults = FaultSchedule(simulation, self.network, self.node, options)
        self.clients: list[SimulatedClient] = []
        self.workloads = [
            kind(Workspace(self._make_client), options)
            for kind in _WORKLOADS
            if kind.is_drawn(options)
        ]
        self.failures: list[str] = []

    def run(self) -> Result:
        """Everything, from the first start to the last check."""
        try:
            self._run()
        except AssertionError as error:
            self.failures.append(f"an assertion failed: {error}")
        return self._result()

    def _run(self) -> None:
        simulation, options = self.simulation, self.options
        if not self.node.start():
            self.failures.append(f"the first start failed: {self.node.start_error}")
            return
        for workload in self.workloads:
            workload.start()
        self.faults.arrange()
        simulation.run_until(int(options.duration_s * SECOND_US), unless=self._has_failed)
        if self._has_failed():
            return
        self.faults.end()
        for workload in self.workloads:
            workload.workspace.is_over = True
        self._wait_for("all clients to finish", self._clients_are_done)
        if self._has_failed():
            return
        for workload in self.workloads:
            workload.wind_up()
        self._wait_for("the last readers", self._clients_are_done)
        if not self._has_failed():
            self._check()

    # The clients

    def _make_client(self, name: str) -> SimulatedClient:
        client = SimulatedClient(self.simulation, self.network, name, self.node.address)
        self.clients.append(client)
        return client

    # What must hold

    def _has_failed(self) -> bool:
        return bool(
            self.failures
            or self.faults.failures
            or self.node.bugs
            or any(workload.workspace.problems for workload in self.workloads)
        )

    def _clients_are_done(self) -> bool:
        return all(task.is_done for client in self.clients for task in client.tasks)

    def _wait_for(self, what: str, holds: Callable[[], bool]) -> None:
        deadline_us = self.simulation.now_us + _SETTLE_S_MAX * SECOND_US
        self.simulation.run_until(deadline_us, unless=lambda: holds() or self._has_failed())
        if not holds() and not self._has_failed():
            stuck = {task.name for c in self.clients for task in c.tasks if not task.is_done}
            self.failures.append(
                f"{_SETTLE_S_MAX} s were not enough for {what}: {', '.join(sorted(stuck))}"
            )

    def _check(self) -> None:
        for client in self.clients:
            for task in client.tasks:
                if task.error is not None:
                    self.failures.append(f"{client.name}: {task.error!r}")
            if client.errors.getvalue():
                self.failures.append(f"{client.name}: {client.errors.getvalue()}")
        for workload in self.workloads:
            self.failures += workload.failures()

    def _result(self) -> Result:
        history = [each for workload in self.workloads for each in workload.workspace.history]
        acknowledged = sum(len(each.sends) for each in history if each.outcome is Outcome.OK)
        self.simulation.trace("scenario", f"acknowledged {acknowledged}")
        return Result(
            seed=self.simulation.seed,
            options=self.options,
            failures=[
                *self.failures,
                *self.faults.failures,
                *(each for workload in self.workloads for each in workload.workspace.problems),
                *self.node.bugs,
            ],
            trace_digest=self.simulation.trace_digest(),
            trace=self.simulation.lines or [],
            simulated_s=self.simulation.now_us / SECOND_US,
            events=self.simulation.events_run,
            acknowledged=acknowledged,
            polled=sum(len(poll) for each in history for poll in each.polls),
            lives=self.node.lives,
        )


def run_seed(seed: int, *, keeps_trace: bool = False) -> Result:
    """Runs one seed; what is wrong is in the result's failures."""
    return Scenario(seed, keeps_trace=keeps_trace).run()
