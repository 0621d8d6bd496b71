"""When the node is killed, loses power or is restarted, and when all faults end."""

from __future__ import annotations

from tidelog.testing.simulation.disk import DiskFaults
from tidelog.testing.simulation.host import HostFaults
from tidelog.testing.simulation.network import Network, NetworkFaults
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.simulation import MS_US, SECOND_US, Simulation

_DOWN_US_MAX = 500 * MS_US


class FaultSchedule:
    """The blows that fall on a node, at times drawn from the seed, and its way back."""

    def __init__(
        self, simulation: Simulation, network: Network, node: SimulatedNode, options: Options
    ) -> None:
        self._simulation = simulation
        self._network = network
        self._node = node
        self._options = options
        self._random = simulation.random("faults")
        self._is_over = False
        self._start_is_due = False
        self.failures: list[str] = []
        node.host.on_power_loss = self._node_went_down

    def arrange(self) -> None:
        """Draw what happens when."""
        options = self._options
        end_us = int(options.duration_s * SECOND_US)
        for count, fault in (
            (options.power_cuts, self._cut_power),
            (options.kills, self._kill),
            (options.restarts, self._restart_cleanly),
            (options.clock_jumps, self._jump_clock),
        ):
            for _ in range(count):
                self._simulation.at(self._random.randrange(end_us), fault)

    def end(self) -> None:
        """No more faults: from here on everything must come right."""
        self._is_over = True
        self._simulation.trace("faults", "end")
        self._network.faults = NetworkFaults()
        # A connection's character is for life: what is slow, or about to be cut, is replaced.
        self._network.cut_all(lambda transport: True)
        self._node.host.faults = HostFaults()
        self._node.disk.faults = DiskFaults(torn_sector=self._node.disk.faults.torn_sector)
        self._node.disk.cut_after_operations(None)
        if not self._node.is_alive:
            self._start_later()

    def _can_strike(self) -> bool:
        return self._node.is_alive and not self._is_over

    def _cut_power(self) -> None:
        """At an operation of the disk a little later, which may be in the middle of anything."""
        if self._can_strike():
            self._node.disk.cut_after_operations(self._random.choice((1, 2, 5, 20, 100)))

    def _kill(self) -> None:
        if self._can_strike():
            self._node.kill()
            self._node_went_down()

    def _restart_cleanly(self) -> None:
        if self._can_strike():
            self._node.stop()
            self._simulation.after(50 * MS_US, self._start_when_stopped)

    def _jump_clock(self) -> None:
        if not self._is_over:
            jump_ms = self._random.choice((-1_000_000, -5_000, 5_000, 1_000_000))
            self._simulation.trace(self._node.name, f"clock jumps by {jump_ms} ms")
            self._node.host.clock_skew_ms += jump_ms

    def _node_went_down(self) -> None:
        self._simulation.trace(self._node.name, "is down")
        self._start_later()

    def _start_later(self) -> None:
        if not self._start_is_due:
            self._start_is_due = True
            self._simulation.after(self._random.randrange(_DOWN_US_MAX), self._start)

    def _start_when_stopped(self) -> None:
        if self._node.is_alive:
            self._simulation.after(50 * MS_US, self._start_when_stopped)
        else:
            self._start_later()

    def _start(self) -> None:
        self._start_is_due = False
        if not self._node.is_alive and not self._node.start() and self._node.start_error:
            self.failures.append(f"the node does not start again: {self._node.start_error}")
