"""A node in the simulator: the real one, which is started, killed and started again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidelog.errors import TidelogError
from tidelog.server.configuration.node_config import NodeConfig
from tidelog.server.node import Node
from tidelog.storage.store_options import StoreOptions
from tidelog.testing.faults import PowerCut
from tidelog.testing.simulation.disk import DiskFaults, SimulatedDisk
from tidelog.testing.simulation.host import HostFaults, SimulatedHost
from tidelog.testing.simulation.invariants import Invariants
from tidelog.testing.simulation.network import Network
from tidelog.testing.simulation.simulation import Simulation
from tidelog.world.network import Address

_PORT = 9092
DATA = "/data"

_SETTINGS = {
    "logging.level": "debug",
    "local.reads.enable": "false",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.heartbeat.interval.ms": "50",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class NodeLog:
    """The log lines of a node: part of the trace; one with a traceback is a bug."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node

    def write(self, text: str) -> int:
        node = self._node
        if node.host.has_power:
            # Without its time, which the trace has.
            line = text.split(" ", 1)[1].rstrip()
            if "unclean_leader_election" in text:
                node.simulation.count("unclean elections told")
            if "Traceback (most recent call last)" in text:
                node.bugs.append(line)
            node.simulation.trace(node.name, line.splitlines()[0])
        return len(text)

    def flush(self) -> None:
        pass


class SimulatedNode:
    """A node with its machine and its disk, over all its lives."""

    def __init__(
        self,
        simulation: Simulation,
        network: Network,
        name: str,
        *,
        settings: Mapping[str, str] | None = None,
        disk_faults: DiskFaults | None = None,
        host_faults: HostFaults | None = None,
        log_directories: Sequence[str] = (DATA,),
        store_options: StoreOptions | None = None,
    ) -> None:
        self.simulation = simulation
        self.name = name
        self.address: Address = (name, _PORT)
        self.host = SimulatedHost(simulation, network, name, host_faults)
        self.disk = self.host.disk = SimulatedDisk(
            simulation.random(f"{name}/disk"),
            now_ms=self.host.wall_ms,
            faults=disk_faults,
            directories=log_directories,
        )
        self.bugs: list[str] = []
        self.invariants = Invariants(self.bugs.append, self.disk)
        self.lives = 0
        self.up_since_us = 0
        self.on_stopped: Callable[[], None] = lambda: None
        self.on_turn: Callable[[], None] = lambda: None
        self.node: Node | None = None
        self._errors_before = 0
        self._store_options = store_options
        self.node_id = int((settings or {}).get("node.id", "1"))
        self._settings = {
            **_SETTINGS,
            "log.dirs": ",".join(log_directories),
            "listeners": f"PLAINTEXT://{name}:{_PORT}",
            **(settings or {}),
        }

    @property
    def _may_fail(self) -> bool:
        """Whether its disk has given it a reason to end in this life."""
        return self.disk.errors > self._errors_before or self.disk.space_bytes is not None

    @property
    def is_alive(self) -> bool:
        return self.host.is_alive

    def start(self) -> bool:
        """Start the node; false when the power went before it was up, or its disk refused."""
        self.lives += 1
        self.start_error = None
        self._errors_before = self.disk.errors
        self.host.boot()
        self.host.log_stream = NodeLog(self)  # type: ignore[assignment]
        self.simulation.trace(self.name, f"starts, life {self.lives}")
        try:
            node: Node | None = Node(NodeConfig(self._settings), self.host, self._store_options)
            assert node is not None
            node.start()
        except PowerCut:
            node = None
        except (TidelogError, OSError) as error:
            if self.host.has_power:
                self.simulation.trace(self.name, f"does not start: {error}")
                self.start_error = error
                self.host.end()
                return False
            # The power went in a job that the start waited for.
            node = None
        if node is None or not self.host.has_power:
            self.simulation.count("starts cut off")
            self.simulation.trace(self.name, "does not get to the end of its start")
            self.host.lose_power()
            return False
        self.node = node
        self.invariants.life_began(node)
        self.invariants.check(node)
        self.up_since_us = self.simulation.now_us
        self.host.run(node.reactor, self._after_turn)
        return True

    start_error: TidelogError | OSError | None = None

    def stop(self) -> None:
        """Ask the node to shut down cleanly; it goes on for a few turns."""
        self.simulation.trace(self.name, "is asked to stop")
        assert self.node is not None
        self.node.request_stop()

    def kill(self) -> None:
        """kill -9: what was written is still in the page cache."""
        self.simulation.trace(self.name, "is killed")
        self.host.end()

    def cut_power(self) -> None:
        self.host.lose_power()

    def _after_turn(self) -> None:
        node = self.node
        assert node is not None
        self.invariants.check(node)
        self.on_turn()
        if node.reactor.is_stopped:
            try:
                node.finish()
            except PowerCut:
                pass
            except (TidelogError, OSError) as error:
                self.simulation.trace(self.name, f"ends: {error}")
                if not self._may_fail:
                    self.bugs.append(str(error))
            if not self.host.has_power:
                self.host.lose_power()
                return
            self.simulation.trace(self.name, "has stopped")
            self.host.end()
            self.on_stopped()
