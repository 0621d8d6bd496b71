"""A quorum of simulated nodes: one clock, one heap of events, links and disks between them."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from random import Random

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.schema import Message
from tidelog.raft.outputs import Send
from tidelog.raft.raft_log import BOOTSTRAP_SNAPSHOT_ID
from tidelog.raft.voters import ReplicaKey, VoterNode, VoterSet
from tidelog.testing.simulation.consensus.checker import Checker
from tidelog.testing.simulation.consensus.disk import SimulatedDisk
from tidelog.testing.simulation.consensus.network import (
    MS_US,
    UNSUPPORTED,
    Links,
    UnsupportedVersion,
    encoded_response,
)
from tidelog.testing.simulation.consensus.node import (
    Origin,
    SimulatedNode,
    endpoints_of,
    settings_of,
    snapshot_content,
)
from tidelog.testing.simulation.consensus.options import Options
from tidelog.testing.simulation.simulation import SECOND_US, NoEndInSight

EVENTS_MAX = 40_000
"""A schedule has some hundred events; one with so many goes round in circles."""
_NUMBER = struct.Struct(">8sq")
_MARK = b"proposal"


class Asked:
    """The token of a request that no node has sent: an operator's."""

    __slots__ = ("response",)

    def __init__(self) -> None:
        self.response: Message | None = None


class Cluster:
    """Runs events in the order of their time."""

    def __init__(self, seed: int, options: Options, *, keeps_trace: bool = False) -> None:
        self.options = options
        self.random = Random(seed * 4 + 1)
        self.now_us = 0
        self.events = 0
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.lines: list[str] | None = [] if keeps_trace else None
        self.settings = settings_of(options)
        self.checker = Checker(self.problem)
        self.links = Links(options, Random(seed * 4 + 2), self.count)
        self._disk_random = Random(seed * 4 + 3)
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._disks: dict[ReplicaKey, SimulatedDisk] = {}
        self._next_proposal = 0
        self.proposals_at: dict[int, SimulatedNode] = {}
        self.unanswered: set[int] = set()
        count = options.voters + options.observers
        self.addresses = tuple((f"node-{node_id}", 9093) for node_id in range(count))
        self.nodes = [self._make_node(node_id) for node_id in range(count)]
        self._by_host = {f"node-{node.node_id}": node for node in self.nodes}
        if options.kraft_version:
            bootstrap = snapshot_content(None, 1, self._initial_voters(has_directories=True))
            for node in self.nodes[: options.voters]:
                node.disk.snapshots[BOOTSTRAP_SNAPSHOT_ID] = bootstrap

    def _initial_voters(self, *, has_directories: bool) -> VoterSet:
        return VoterSet(
            VoterNode(
                ReplicaKey(node_id, directory_id(node_id, 0))
                if has_directories
                else ReplicaKey(node_id),
                endpoints_of(node_id),
                0,
                1,
            )
            for node_id in range(self.options.voters)
        )

    def _make_node(self, node_id: int) -> SimulatedNode:
        static_voters = VoterSet(())
        if not self.options.kraft_version:
            static_voters = self._initial_voters(has_directories=False)
        rate = 1.0 + self.options.skew * (self.random.random() * 2 - 1)
        node = SimulatedNode(
            self, node_id, directory_id(node_id, 0), static_voters, rate, self.random
        )
        self._disks[node.key] = node.disk
        return node

    # Events

    def at(self, time_us: int, call: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._heap, (time_us, self._sequence, call))

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        self.at(self.now_us + delay_us, call)

    def run_until(self, time_us: int) -> None:
        """Up to a time, or to the first problem."""
        heap = self._heap
        while heap and heap[0][0] <= time_us and not self.problems:
            self.now_us, _, call = heappop(heap)
            self.events += 1
            if self.events > EVENTS_MAX:
                raise NoEndInSight(f"more than {EVENTS_MAX} events")
            call()
        if not self.problems:
            self.now_us = max(self.now_us, time_us)

    # The story

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def problem(self, what: str) -> None:
        self.trace(-1, f"PROBLEM: {what}")
        self.problems.append(what)

    def trace(self, node_id: int, what: str) -> None:
        if self.lines is not None:
            who = "cluster" if node_id < 0 else f"node-{node_id}"
            self.lines.append(f"{self.now_us / SECOND_US:10.6f}  {who:<10} {what}")

    # Messages

    def send(self, source: SimulatedNode, sent: Send) -> None:
        links, destination = self.links, sent.destination
        target = self._by_host[destination.host]
        if self.lines is not None:
            self.trace(source.node_id, f"-> {target.node_id} {told(sent.request)}")
        fail = partial(
            source.failed,
            source.life,
            sent.correlation,
            destination.node_id,
            ErrorCode.BROKER_NOT_AVAILABLE,
        )
        if links.loses(source.node_id, target.node_id):
            if links.is_noticed():
                self.at(links.arrival_us(target.node_id, source.node_id, self.now_us), fail)
            return
        version, request = -1, sent.request
        if self.options.encodes:
            try:
                version, request = links.encoded(source.node_id, target.node_id, request)
            except UnsupportedVersion:
                self.count("old voters asked")
                self.after(
                    MS_US,
                    partial(
                        source.failed,
                        source.life,
                        sent.correlation,
                        destination.node_id,
                        UNSUPPORTED,
                    ),
                )
                return
        origin = Origin(
            source, source.life, sent.correlation, destination.node_id, request, version
        )
        arrival_us = links.arrival_us(source.node_id, target.node_id, self.now_us)
        self.at(arrival_us, partial(self._deliver, target, origin, fail))

    def _deliver(self, target: SimulatedNode, origin: Origin, fail: Callable[[], None]) -> None:
        if target.replica is None:
            if self.links.is_noticed():
                self.after(MS_US, fail)
            return
        target.receive(origin.request, origin)

    def respond(self, source: SimulatedNode, token: object, response: Message) -> None:
        if isinstance(token, Asked):
            token.response = response
            return
        assert isinstance(token, Origin)
        target, links = token.node, self.links
        if self.lines is not None:
            self.trace(source.node_id, f"=> {target.node_id} {told(response)}")
        if token.life != target.life:
            return
        arrival_us = links.arrival_us(source.node_id, target.node_id, self.now_us)
        if links.loses(source.node_id, target.node_id):
            if links.is_noticed():
                error = ErrorCode.BROKER_NOT_AVAILABLE
                self.at(
                    arrival_us,
                    partial(target.failed, token.life, token.correlation, token.node_id, error),
                )
            return
        if token.version >= 0:
            response = encoded_response(token.request, token.version, response)
        self.at(arrival_us, partial(target.answered, token, response))

    def ask(self, node: SimulatedNode, request: Message) -> Asked:
        """As an operator, who is on the spot."""
        asked = Asked()
        if self.lines is not None:
            self.trace(node.node_id, f"is asked {told(request)}")
        node.receive(request, asked)
        return asked

    # Disks

    def disk_us(self) -> int:
        """How long a sync takes."""
        random = self._disk_random
        if self.options.slow_disk and self.links.is_faulty:
            self.count("syncs in war")
            if random.random() < self.options.slow_disk:
                self.count("slow syncs")
                return random.randrange(800 * MS_US)
        return 200 + random.randrange(4 * MS_US)

    def disks_of(self, key: ReplicaKey) -> Iterable[SimulatedDisk]:
        if any(key.directory_id):
            disk = self._disks.get(key)
            return () if disk is None else (disk,)
        return (self.nodes[key.id].disk,)

    # Nodes

    def start_if_down(self, node: SimulatedNode) -> Callable[[], None]:
        def start() -> None:
            if node.replica is None:
                node.start()

        return start

    def replace_disk(self, node: SimulatedNode, number: int) -> None:
        node.replace_disk(directory_id(node.node_id, number))
        self._disks[node.key] = node.disk

    @property
    def leader(self) -> SimulatedNode | None:
        """Who leads the newest epoch, as far as the nodes know."""
        leaders = [
            node for node in self.nodes if node.replica is not None and node.replica.is_leader
        ]
        return max(leaders, key=_epoch_of, default=None)

    def voted(self, node: SimulatedNode) -> None:
        """The moment at which a voter that forgets does most harm."""
        if self.options.crashes and self.links.is_faulty and self.random.random() < 0.2:
            self.count("power cuts after a vote")
            self.after(self.random.randrange(5 * MS_US), partial(node.stop, with_power=False))
            self.after(10 * MS_US, self.start_if_down(node))

    def died(self, node: SimulatedNode) -> None:
        """What was proposed there is never answered."""
        lost = [number for number, at in self.proposals_at.items() if at is node]
        for number in lost:
            del self.proposals_at[number]
        self.unanswered.update(lost)

    # Proposals

    def propose(self, node: SimulatedNode) -> int:
        number = self._next_proposal
        self._next_proposal += 1
        self.checker.proposed(number)
        self.proposals_at[number] = node
        value = _NUMBER.pack(_MARK, number)
        node.propose(encode_batch([Record(0, 0, None, value)]), number)
        return number

    def proposal_ended(self, number: int, end_offset: int, error: ApiError | None) -> None:
        self.proposals_at.pop(number, None)
        self.count("proposals committed" if error is None else "proposals failed")
        self.checker.proposal_ended(number, end_offset, error)
        if self.lines is not None:
            how = f"is committed, up to {end_offset}" if error is None else f"fails: {error}"
            self.trace(-1, f"proposal {number} {how}")


def number_of(batch: bytes) -> int | None:
    """The proposal that a batch holds."""
    at = batch.find(_MARK)
    return None if at < 0 else int(_NUMBER.unpack_from(batch, at)[1])


def directory_id(node_id: int, number: int) -> bytes:
    return struct.pack(">qii", 1, node_id, number + 1)


def _epoch_of(node: SimulatedNode) -> int:
    return -1 if node.replica is None else node.replica.epoch


def told(message: Message) -> str:
    """A message in a line of the trace."""
    name = type(message).__name__
    topics = getattr(message, "topics", None) or getattr(message, "responses", None)
    if topics and topics[0].partitions:
        partition = topics[0].partitions[0]
        shown = []
        for each in partition.FIELDS:
            value = getattr(partition, each.name)
            if isinstance(value, (bytes, bytearray, memoryview)):
                if each.name in ("records", "unaligned_records"):
                    shown.append(f"{each.name}={len(value)}B")
            elif not isinstance(value, list) and value != each.default:
                shown.append(f"{each.name}={value}")
        return f"{name} {' '.join(shown)}"
    code = getattr(message, "error_code", 0)
    return f"{name} {ErrorCode(code).name if code else ''}"
