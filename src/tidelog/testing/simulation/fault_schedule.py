"""When the node is killed, loses power or is restarted, when its disk fails, and when that ends."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tidelog.testing.simulation.disk import DiskFaults
from tidelog.testing.simulation.fault_events import FaultEvents
from tidelog.testing.simulation.fault_options import FaultOptions
from tidelog.testing.simulation.host import HostFaults
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.simulation import MS_US, SECOND_US, Simulation

_DOWN_US_MAX = 500 * MS_US
_FULL_US_MAX = 1500 * MS_US
_OPERATOR_US = (5 * MS_US, 100 * MS_US, 1000 * MS_US)
_OPERATIONS = (1, 2, 5, 20, 100)
_OPERATIONS_OF_A_START = (1, 3, 10, 25, 50, 80)


class FaultSchedule:
    """The blows that fall on a node, at times drawn from the seed, and its way back.

    A disk that has met an error is a matter for the operator: the node is started again within a
    second, whether it has gone on or not. After an error of a sync the machine goes down with it,
    for nobody can tell what its page cache is worth.
    """

    def __init__(
        self,
        simulation: Simulation,
        node: SimulatedNode,
        options: Options,
        fault_options: FaultOptions,
        *,
        purpose: str = "faults",
        down_us_max: int = _DOWN_US_MAX,
        events: FaultEvents | None = None,
    ) -> None:
        """With `events` each fault is one of them, and can be left out."""
        self._simulation = simulation
        self._node = node
        self._options = options
        self._fault_options = fault_options
        self._random = self._draws = simulation.random(purpose)
        self._events = events
        self._down_us_max = down_us_max
        self._is_over = self._is_retired = False
        self._start_is_due = False
        self._operator_is_called = False
        self.over_since_us = 1 << 60
        self.failures: list[str] = []
        node.host.on_power_loss = self._node_went_down
        node.on_stopped = self._node_stopped
        node.disk.on_error = self._disk_failed

    def arrange(self, begin_us: int = 0) -> None:
        """Draw what happens when, from a time on."""
        options, more = self._options, self._fault_options
        span_us = int(options.duration_s * SECOND_US)
        for count, fault in (
            (options.power_cuts, self._cut_power),
            (options.kills, self._kill),
            (options.restarts, self._restart_cleanly),
            (options.clock_jumps, self._jump_clock),
            (more.full_disks, self._fill_disk),
            (more.write_errors, self._fail_write),
            (more.sync_errors, self._fail_sync),
            (more.read_errors, self._fail_read),
            (more.interrupted_stops, self._interrupt_stop),
        ):
            for _ in range(count):
                self._arrange(begin_us + self._random.randrange(span_us), fault)

    def _arrange(self, time_us: int, fault: Callable[[], None]) -> None:
        if self._events is None:
            self._simulation.at(time_us, fault)
            return

        def strike(random: Random) -> None:
            self._draws = random
            fault()

        what = fault.__name__.strip("_").replace("_", " ")
        self._events.at(time_us, self._node.name, what, strike)

    def retire(self) -> None:
        """The node is not started again, whatever becomes of it."""
        self._is_retired = True

    def come_back(self) -> None:
        """It is started again after all."""
        self._is_retired = False
        if not self._node.is_alive:
            self._start_later()

    def end(self) -> None:
        """No more faults of the node: from here on it must come right."""
        self._is_over = True
        self.over_since_us = self._simulation.now_us
        self._node.host.faults = HostFaults()
        disk = self._node.disk
        disk.faults = DiskFaults(torn_sector=disk.faults.torn_sector)
        disk.heal()
        disk.end_after_operations(None)
        if self._operator_is_called:
            self._operate()
        if not self._node.is_alive:
            self._start_later()

    def _can_strike(self) -> bool:
        return self._node.is_alive and not self._is_over

    # The node goes down

    def _cut_power(self) -> None:
        """At an operation of the disk a little later, which may be in the middle of anything."""
        if self._can_strike():
            self._node.disk.end_after_operations(self._draws.choice(_OPERATIONS))

    def _kill(self) -> None:
        if self._can_strike():
            self._simulation.count("kills")
            self._node.kill()
            self._node_went_down()

    def _restart_cleanly(self) -> None:
        if self._can_strike():
            self._simulation.count("clean stops")
            self._node.stop()

    def _interrupt_stop(self) -> None:
        if self._can_strike():
            self._simulation.count("stops with a power cut")
            self._node.stop()
            self._node.disk.end_after_operations(self._draws.choice(_OPERATIONS))

    def _jump_clock(self) -> None:
        if not self._is_over:
            self._simulation.count("clock jumps")
            jump_ms = self._draws.choice((-1_000_000, -5_000, 5_000, 1_000_000))
            self._simulation.trace(self._node.name, f"clock jumps by {jump_ms} ms")
            self._node.host.clock_skew_ms += jump_ms

    # The disk

    def _fill_disk(self) -> None:
        disk = self._node.disk
        if not self._is_over and disk.space_bytes is None:
            self._simulation.count("full disks")
            room_bytes = self._draws.choice((0, 500, 5_000, 50_000))
            self._simulation.trace(self._node.name, f"has {room_bytes} bytes left on its disk")
            disk.space_bytes = disk.used_bytes + room_bytes
            self._simulation.after(self._draws.randrange(_FULL_US_MAX), self._make_room)

    def _make_room(self) -> None:
        self._simulation.trace(self._node.name, "has room on its disk")
        self._node.disk.space_bytes = None

    def _fail_write(self) -> None:
        if not self._is_over:
            self._node.disk.fail_once("write", after=self._draws.choice(_OPERATIONS))

    def _fail_sync(self) -> None:
        if not self._is_over:
            self._node.disk.fail_once("sync", after=self._draws.choice(_OPERATIONS))

    def _fail_read(self) -> None:
        if not self._is_over:
            self._node.disk.fail_once("read", after=self._draws.choice(_OPERATIONS))

    def _disk_failed(self, kind: str, path: str) -> None:
        self._simulation.count(f"{kind} errors")
        self._simulation.trace(self._node.name, f"meets an error of a {kind} of {path}")
        if not self._operator_is_called:
            self._operator_is_called = True
            delay_us = self._random.randrange(self._random.choice(_OPERATOR_US))
            self._simulation.after(delay_us, self._operate)

    def _operate(self) -> None:
        """The operator ends the node after an error of its disk, unless it has ended itself."""
        if not self._operator_is_called:
            return
        self._operator_is_called = False
        node = self._node
        if node.is_alive:
            how = self._random.choice((node.stop, node.cut_power, node.kill))
            if node.disk.is_in_doubt:
                how = node.cut_power
            how()
            if how == node.kill:
                self._node_went_down()

    # The way back

    def _node_stopped(self) -> None:
        self._start_later()

    def _node_went_down(self) -> None:
        self._simulation.trace(self._node.name, "is down")
        self._start_later()

    def _start_later(self) -> None:
        if not self._start_is_due and not self._is_retired:
            self._start_is_due = True
            self._simulation.after(self._random.randrange(self._down_us_max), self._start)

    def _start(self) -> None:
        self._start_is_due = False
        node, disk = self._node, self._node.disk
        if node.is_alive or self._is_retired:
            return
        if disk.is_in_doubt:
            self._simulation.trace(node.name, "is rebooted")
            disk.power_cut()
        has_room, errors = disk.space_bytes is None, disk.errors
        if not self._is_over:
            self._draw_end_of_start()
        if node.start() or not node.start_error:
            return
        if has_room and errors == disk.errors:
            self.failures.append(f"the node does not start again: {node.start_error}")
        else:
            self._start_later()

    def _draw_end_of_start(self) -> None:
        """Perhaps the start does not get to its end."""
        chance, disk = self._random.random(), self._node.disk
        if chance < self._fault_options.cut_starts / 2:
            disk.end_after_operations(self._random.choice(_OPERATIONS_OF_A_START))
        elif chance > 1 - self._fault_options.killed_starts / 2:
            disk.end_after_operations(self._random.choice(_OPERATIONS_OF_A_START), how="kill")
