"""What happens to several nodes at once: partitions of the network, slow links, pauses."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tidelog.testing.simulation.cluster.options import ClusterOptions
from tidelog.testing.simulation.fault_events import FaultEvents
from tidelog.testing.simulation.links import Link
from tidelog.testing.simulation.network import Network
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.simulation import MS_US, SECOND_US, Simulation

_BLOCKED_US_MAX = (300 * MS_US, 1500 * MS_US, 4000 * MS_US)
_PAUSED_US_MAX = (200 * MS_US, 1000 * MS_US, 3000 * MS_US)
_EXTRA_US_MAX = 200 * MS_US


class ClusterFaults:
    """Faults of the links between nodes, and of nodes that stand still, at times drawn from the
    seed. Clients reach every node all the time: a leader that is cut off has clients."""

    def __init__(
        self,
        simulation: Simulation,
        network: Network,
        nodes: Sequence[SimulatedNode],
        options: ClusterOptions,
        events: FaultEvents,
    ) -> None:
        self._events = events
        self._simulation = simulation
        self._network = network
        self._nodes = nodes
        self._options = options
        self._random = simulation.random("cluster faults")
        self._is_over = False

    def arrange(self, begin_us: int) -> None:
        """Draw what happens when."""
        options = self._options
        span_us = int(options.work.duration_s * SECOND_US)
        for count, who, what, fault in (
            (options.partitions_of_network, "network", "partition", self._part),
            (options.slow_links, "network", "slow links", self._slow_down),
            (options.pauses, "nodes", "pause", self._pause),
        ):
            for _ in range(count):
                time_us = begin_us + self._random.randrange(span_us)
                self._events.at(time_us, who, what, fault)

    def end(self) -> None:
        """The network is good again, by `Network.end_faults`, and everybody runs."""
        self._is_over = True
        for node in self._nodes:
            node.host.resume()

    def _part(self, random: Random) -> None:
        if self._is_over:
            return
        self._random = random
        kind, links = self._random.choice(
            (self._isolate, self._split, self._block_one_way, self._leave_bridge)
        )()
        self._simulation.count(f"{kind} partitions")
        self._simulation.trace("network", f"{kind} partition: {_told(links)}")
        self._network.links.block(links)
        self._heal_later(links, self._random.choice(_BLOCKED_US_MAX))

    def _slow_down(self, random: Random) -> None:
        if self._is_over:
            return
        self._random = random
        links = self._random.choice((self._isolate, self._block_one_way))()[1]
        extra_us = self._random.randrange(_EXTRA_US_MAX)
        self._simulation.count("slow links")
        self._simulation.trace("network", f"{extra_us / MS_US:g} ms more: {_told(links)}")
        self._network.links.slow_down(links, extra_us)
        self._heal_later(links, self._random.choice(_BLOCKED_US_MAX))

    def _heal_later(self, links: list[Link], longest_us: int) -> None:
        def heal() -> None:
            if not self._is_over:
                self._simulation.trace("network", f"heals: {_told(links)}")
                self._network.links.heal(links)

        self._simulation.after(self._random.randrange(longest_us), heal)

    def _pause(self, random: Random) -> None:
        if self._is_over:
            return
        self._random = random
        node = self._random.choice(self._nodes)
        if node.is_alive:
            duration_us = self._random.randrange(self._random.choice(_PAUSED_US_MAX))
            self._simulation.count("pauses")
            self._simulation.trace(node.name, f"stands still for {duration_us / MS_US:g} ms")
            node.host.pause(duration_us)

    # Kinds of partitions

    def _isolate(self) -> tuple[str, list[Link]]:
        """One node from all others."""
        names = self._shuffled()
        return "isolating", _both_ways(names[:1], names[1:])

    def _split(self) -> tuple[str, list[Link]]:
        """Two halves, of any size."""
        names = self._shuffled()
        at = self._random.randrange(1, len(names))
        return "splitting", _both_ways(names[:at], names[at:])

    def _block_one_way(self) -> tuple[str, list[Link]]:
        """What one node sends arrives nowhere, or it hears nothing."""
        names = self._shuffled()
        links = [(names[0], name) for name in names[1:]]
        if self._random.random() < 0.5:
            links = [(target, source) for source, target in links]
        return "one-way", links

    def _leave_bridge(self) -> tuple[str, list[Link]]:
        """Two halves, and one node that reaches both."""
        names = self._shuffled()
        at = self._random.randrange(2, len(names))
        return "bridge", _both_ways(names[1:at], names[at:])

    def _shuffled(self) -> list[str]:
        return self._random.sample([node.name for node in self._nodes], len(self._nodes))


def _both_ways(some: list[str], others: list[str]) -> list[Link]:
    one_way = [(source, target) for source in some for target in others]
    return one_way + [(target, source) for source, target in one_way]


def _told(links: list[Link]) -> str:
    return ", ".join(f"{source} to {target}" for source, target in links)
