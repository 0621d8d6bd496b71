"""The clients of a seed and what they work on: begun, waited for and looked at in the end."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.testing.history import Outcome
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.simulation import SECOND_US, Simulation
from tidelog.testing.simulation.workloads.workload import Workload

_SETTLE_S_MAX = 60
"""So long may it take until everything has come to its end once the faults have stopped."""


class Workbench:
    """All clients and workloads. `has_failed` says whether the rest of the world has."""

    def __init__(self, simulation: Simulation, has_failed: Callable[[], bool]) -> None:
        self._simulation = simulation
        self._world_has_failed = has_failed
        self.clients: list[SimulatedClient] = []
        self.workloads: list[Workload] = []
        self._failures: list[str] = []

    def start(self) -> None:
        for workload in self.workloads:
            workload.start()

    def finish(self) -> None:
        """Nothing new begins; what is under way comes to its end; the last readers look."""
        for workload in self.workloads:
            workload.workspace.is_over = True
        self.wait_for("all clients to finish", self._clients_are_done)
        if self.has_failed():
            return
        for workload in self.workloads:
            workload.wind_up()
        self.wait_for("the last readers", self._clients_are_done)
        if not self.has_failed():
            self._check()

    def wait_for(
        self,
        what: str,
        holds: Callable[[], bool],
        *,
        is_stuck: Callable[[], str] | None = None,
        seconds_max: float = _SETTLE_S_MAX,
    ) -> None:
        """Run until something holds; `is_stuck` tells what keeps it from that."""
        simulation = self._simulation
        deadline_us = simulation.now_us + int(seconds_max * SECOND_US)
        simulation.run_until(deadline_us, unless=lambda: holds() or self.has_failed())
        if not holds() and not self.has_failed():
            stuck = (is_stuck or self._stuck_tasks)()
            self._failures.append(f"{seconds_max:g} s were not enough for {what}: {stuck}")

    def has_failed(self) -> bool:
        return bool(
            self._failures
            or any(client.problems for client in self.clients)
            or any(workload.workspace.problems for workload in self.workloads)
            or self._world_has_failed()
        )

    @property
    def failures(self) -> list[str]:
        return [
            *self._failures,
            *(each for workload in self.workloads for each in workload.workspace.problems),
            *(each for client in self.clients for each in client.problems),
        ]

    def counts(self) -> dict[str, int]:
        history = [each for workload in self.workloads for each in workload.workspace.history]
        return {
            "acknowledged": sum(len(each.sends) for each in history if each.outcome is Outcome.OK),
            "polled": sum(len(poll) for each in history for poll in each.polls),
        }

    def _clients_are_done(self) -> bool:
        return all(task.is_done for client in self.clients for task in client.tasks)

    def _stuck_tasks(self) -> str:
        stuck = {task.name for c in self.clients for task in c.tasks if not task.is_done}
        return ", ".join(sorted(stuck))

    def _check(self) -> None:
        for client in self.clients:
            for task in client.tasks:
                if task.error is not None:
                    self._failures.append(f"{client.name}: {task.error!r}")
            if client.errors.getvalue():
                self._failures.append(f"{client.name}: {client.errors.getvalue()}")
        for workload in self.workloads:
            self._failures += workload.failures()
