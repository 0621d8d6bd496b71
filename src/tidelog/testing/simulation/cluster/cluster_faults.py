"""What happens to several nodes at once, and what strikes where something is under way.

Partitions of the network, slow links and pauses come at any time. Others are aimed: an in-sync
set that is proposed reaches the controller when the partition has changed; between the decision of
a transaction and its markers the coordinator loses power, or its connections; what it says of a
transaction comes when that is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from tidelog.cluster.replication.partition import Partition
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peers import Purpose
from tidelog.testing.simulation.cluster.invariants import ClusterInvariants
from tidelog.testing.simulation.cluster.options import ClusterOptions
from tidelog.testing.simulation.fault_events import FaultEvents
from tidelog.testing.simulation.links import Link
from tidelog.testing.simulation.network import Network, SimulatedTransport
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.simulation import MS_US, SECOND_US, Simulation

_BLOCKED_US_MAX = (300 * MS_US, 1500 * MS_US, 4000 * MS_US)
_PAUSED_US_MAX = (200 * MS_US, 1000 * MS_US, 3000 * MS_US)
_EXTRA_US_MAX = 200 * MS_US
_HELD_US_MAX = (200 * MS_US, 500 * MS_US, 1500 * MS_US)
_GIVEN_UP_US = (5 * MS_US, 40 * MS_US)
_LATE_US = (50 * MS_US, 500 * MS_US)
_SPAN_US = (500 * MS_US, 4000 * MS_US)
Hears = TypeVar("Hears")
_DECIDED_US_MAX = (100, 2 * MS_US, 20 * MS_US)
"""So long after a decision, at most, does its coordinator lose power."""


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
        watched: ClusterInvariants,
    ) -> None:
        """`watched` tells what is under way."""
        self._events = events
        self._watched = watched
        self.on_held: Callable[[TopicPartition, Random], None] = lambda partition, random: None
        """Is asked to change a partition that a request is about which is being held."""
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
            (options.held_proposals, "network", "held requests", self._hold_requests),
            (options.coordinator_cuts, "nodes", "cut of a coordinator", self._cut_coordinator),
            (options.held_markers, "network", "held markers", self._repeat_markers),
            (
                options.held_verifications,
                "network",
                "held verifications",
                self._hold_verifications,
            ),
        ):
            for _ in range(count):
                time_us = begin_us + self._random.randrange(span_us)
                self._events.at(time_us, who, what, fault)

    def end(self) -> None:
        """The network is good again, by `Network.end_faults`, and everybody runs."""
        self._is_over = True
        self._watched.transactions.on_decision.clear()
        self._watched.transactions.on_change.clear()
        self._watched.decisions.on_proposal = None
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

    # What is aimed

    def _hold_requests(self, random: Random) -> None:
        """The next time that a leader proposes another in-sync set, what it sends to the controller
        comes later: by then the partition has changed."""

        def proposed(partition: Partition) -> None:
            leader = next((e for e in self._nodes if e.node_id == partition.node_id), None)
            controllers = [
                each
                for each in self._nodes
                if each.is_alive and each.node is not None and each.node.metadata.is_active
            ]
            if leader is None or not controllers or leader in controllers:
                return
            self._watched.decisions.on_proposal = None
            links = [(leader.name, random.choice(controllers).name)]
            self._simulation.count("held proposals of in-sync sets")
            self._simulation.trace("network", f"holds: {_told(links)}")
            self._network.links.block(links)
            self._random = random
            self._heal_later(links, random.choice(_HELD_US_MAX))
            held = TopicPartition(partition.topic, partition.partition)
            self._simulation.after(0, lambda: self.on_held(held, random))

        if not self._is_over:
            self._watched.decisions.on_proposal = proposed

    def _cut_coordinator(self, random: Random) -> None:
        """With the next decision of a transaction."""

        waiting = self._watched.transactions.on_decision

        def decided(which: SimulatedNode, _: TopicPartition) -> None:
            waiting.remove(decided)
            delay_us = random.randrange(random.choice(_DECIDED_US_MAX))
            self._simulation.after(delay_us, cut(which))

        def cut(which: SimulatedNode) -> Callable[[], None]:
            def strike() -> None:
                if which.is_alive and not self._is_over:
                    self._simulation.count("cuts of a coordinator with a decision")
                    which.cut_power()

            return strike

        if not self._is_over:
            waiting.append(decided)

    def _repeat_markers(self, random: Random) -> None:
        """For a while, coordinators that have decided a transaction give up the connections that
        markers take. They send them again over others, or another node does; the first ones arrive
        later."""

        def decided(which: SimulatedNode, state: TopicPartition) -> None:
            if random.random() < 0.4:
                return
            self._simulation.count("held markers")
            self._simulation.trace(which.name, "is about to send markers twice")
            after_us = random.randrange(*_GIVEN_UP_US)
            late_us = after_us + random.randrange(*_LATE_US)
            self._network.give_up(_made_for(Purpose.TRANSACTIONS, which), after_us, late_us)
            if random.random() < 0.5:
                self._simulation.after(0, lambda: self.on_held(state, random))

        self._for_a_while(self._watched.transactions.on_decision, decided, random)

    def _hold_verifications(self, random: Random) -> None:
        """For a while, nodes hear later what a coordinator says of a transaction that has changed;
        its markers take other connections."""

        def changed(which: SimulatedNode) -> None:
            if random.random() < 0.4:
                return
            late_us = random.randrange(*_LATE_US)
            for other in self._nodes:
                if other is which or not other.is_alive:
                    continue
                for transport in _made_for(Purpose.VERIFICATION, other, which):
                    if transport.peer is not None:
                        self._simulation.count("held verifications")
                        transport.peer.hold_back(late_us)

        self._for_a_while(self._watched.transactions.on_change, changed, random)

    def _for_a_while(self, waiting: list[Hears], hears: Hears, random: Random) -> None:
        def end() -> None:
            if hears in waiting:
                waiting.remove(hears)

        if not self._is_over:
            waiting.append(hears)
            self._simulation.after(random.randrange(*_SPAN_US), end)

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


def _made_for(
    purpose: Purpose, source: SimulatedNode, target: SimulatedNode | None = None
) -> list[SimulatedTransport]:
    """The connections that a node has made to other nodes, or to one of them."""
    assert source.node is not None
    found = [
        connection._transport
        for (node_id, what), connection in source.node.peers._connections.items()
        if what is purpose and (target is None or target.node_id == node_id)
    ]
    return [each for each in found if isinstance(each, SimulatedTransport)]


def _both_ways(some: list[str], others: list[str]) -> list[Link]:
    one_way = [(source, target) for source in some for target in others]
    return one_way + [(target, source) for source, target in one_way]


def _told(links: list[Link]) -> str:
    return ", ".join(f"{source} to {target}" for source, target in links)
