"""A node in the simulator: the real one, which is started, killed and started again."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidelog.errors import TidelogError
from tidelog.server.config import NodeConfig
from tidelog.server.node import Node
from tidelog.testing.faults import PowerCut
from tidelog.testing.simulation.disk import DiskFaults, SimulatedDisk
from tidelog.testing.simulation.host import HostFaults, SimulatedHost
from tidelog.testing.simulation.network import Network
from tidelog.testing.simulation.simulation import Simulation
from tidelog.world.network import Address

_PORT = 9092
_DATA = "/data"

_SETTINGS = {
    "log.dirs": _DATA,
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
    ) -> None:
        self.simulation = simulation
        self.name = name
        self.address: Address = (name, _PORT)
        self.host = SimulatedHost(simulation, network, name, host_faults)
        self.disk = self.host.disk = SimulatedDisk(
            simulation.random(f"{name}/disk"),
            now_ms=self.host.wall_ms,
            faults=disk_faults,
            directories=[_DATA],
        )
        self.bugs: list[str] = []
        self.lives = 0
        self.node: Node | None = None
        self._settings = {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://{name}:{_PORT}",
            **(settings or {}),
        }

    @property
    def is_alive(self) -> bool:
        return self.host.is_alive

    def start(self) -> bool:
        """Start the node; false when the power went before it was up, or its disk refused."""
        self.lives += 1
        self.host.boot()
        self.host.log_stream = NodeLog(self)  # type: ignore[assignment]
        self.simulation.trace(self.name, f"starts, life {self.lives}")
        try:
            node = Node(NodeConfig(self._settings), self.host)
            node.start()
        except PowerCut:
            self.host.lose_power()
            return False
        except (TidelogError, OSError) as error:
            self.simulation.trace(self.name, f"does not start: {error}")
            self.start_error = error
            self.host.end()
            return False
        self.node = node
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
        self.simulation.trace(self.name, "loses power")
        self.host.lose_power()

    def _after_turn(self) -> None:
        node = self.node
        assert node is not None
        if node.reactor.is_stopped:
            try:
                node.finish()
            except PowerCut:
                self.host.lose_power()
                return
            except TidelogError as error:
                self.bugs.append(str(error))
            self.simulation.trace(self.name, "has stopped")
            self.host.end()


def quiet_logging() -> None:
    """Lines of the logging module are the node's business; keep them off standard error."""
    logger = logging.getLogger("tidelog")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
