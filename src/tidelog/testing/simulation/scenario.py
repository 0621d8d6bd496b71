"""One seed from beginning to end: a node, clients, faults, and what must hold.

The seed draws everything: how many clients of which kind, which faults and how often, when the node
is killed or loses power. First there are faults for a while; then they stop, and everything that is
under way must come to an end (liveness): a fault that heals by itself would hide a request that is
stuck for ever. In the end all partitions are read and the whole history is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from random import Random

from tidelog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.peer_connection import PeerError
from tidelog.testing.history import check_history
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.disk import DiskFaults
from tidelog.testing.simulation.host import HostFaults
from tidelog.testing.simulation.network import Network, NetworkFaults
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.simulation import MS_US, SECOND_US, Simulation
from tidelog.testing.simulation.workloads.consuming import Consumer, read_everything
from tidelog.testing.simulation.workloads.producing import RETRIABLE, IdempotentProducer
from tidelog.testing.simulation.workloads.workspace import Workspace

_SETTLE_S_MAX = 60
"""So long may it take until everything has come to its end once the faults have stopped."""


@dataclass(slots=True)
class Options:
    """What one seed is about; drawn from the seed, and told when it fails."""

    duration_s: float
    topics: int
    partitions: int
    producers: int
    consumers: int
    acks_all: bool
    segment_bytes: int
    slow_network: float
    dripping_network: float
    cutting_network: float
    stalling_network: float
    small_windows: float
    late_jobs: float
    late_turns: float
    short_writes: float
    power_cuts: int
    kills: int
    restarts: int
    clock_jumps: int

    @classmethod
    def draw(cls, random: Random) -> Options:
        def sometimes(chance: float, most: float) -> float:
            return random.random() * most if random.random() < chance else 0.0

        return cls(
            duration_s=random.choice((1.0, 2.0, 4.0)),
            topics=random.randint(1, 2),
            partitions=random.randint(1, 3),
            producers=random.randint(1, 3),
            consumers=random.randint(0, 2),
            acks_all=random.random() < 0.7,
            segment_bytes=random.choice((2_000, 10_000, 1 << 20)),
            slow_network=sometimes(0.3, 0.5),
            dripping_network=sometimes(0.3, 0.5),
            cutting_network=sometimes(0.4, 0.5),
            stalling_network=sometimes(0.3, 0.3),
            small_windows=sometimes(0.3, 0.5),
            late_jobs=sometimes(0.3, 0.2),
            late_turns=sometimes(0.2, 0.05),
            short_writes=sometimes(0.3, 0.1),
            power_cuts=random.choice((0, 0, 1, 1, 2, 4)),
            kills=random.choice((0, 0, 1, 2)),
            restarts=random.choice((0, 0, 0, 1)),
            clock_jumps=random.choice((0, 0, 0, 1, 2)),
        )

    def __str__(self) -> str:
        return ", ".join(
            f"{each.name} {value:.3g}" if isinstance(value, float) else f"{each.name} {value}"
            for each in fields(self)
            if (value := getattr(self, each.name))
        )


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
        self._random = simulation.random("scenario")
        self.options = options = Options.draw(self._random)
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
            disk_faults=DiskFaults(short_write=options.short_writes, torn_sector=0.05),
            host_faults=HostFaults(late_jobs=options.late_jobs, late_turns=options.late_turns),
        )
        self.node.host.on_power_loss = self._node_went_down
        self.workspace = Workspace()
        self.clients: list[SimulatedClient] = []
        self.producers: list[IdempotentProducer] = []
        self.failures: list[str] = []
        self._faults_are_over = False
        self._restart_is_due = False

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
        self._make_clients()
        self._arrange_faults()
        simulation.run_until(int(options.duration_s * SECOND_US), unless=self._has_failed)
        if self._has_failed():
            return
        self._end_faults()
        self.workspace.is_over = True
        self._wait_for("all clients to finish", self._clients_are_done)
        if not self._has_failed():
            self._read_everything()
        if not self._has_failed():
            self._check()

    # The clients

    def _make_client(self, name: str) -> SimulatedClient:
        client = SimulatedClient(self.simulation, self.network, name, self.node.address)
        self.clients.append(client)
        return client

    def _make_clients(self) -> None:
        options, workspace = self.options, self.workspace
        admin = self._make_client("admin")
        admin.start(self._create_topics(admin))
        for number in range(options.producers):
            client = self._make_client(f"producer-{number}")
            producer = IdempotentProducer(client, workspace, acks=-1 if options.acks_all else 1)
            self.producers.append(producer)
            client.start(self._when_there_are_topics(client, producer.run))
        for number in range(options.consumers):
            client = self._make_client(f"consumer-{number}")
            consumer = Consumer(client, workspace, read_committed=bool(number % 2))
            client.start(self._when_there_are_topics(client, consumer.run))

    async def _create_topics(self, client: SimulatedClient) -> None:
        options = self.options
        config = CreatableTopicConfig(name="segment.bytes", value=str(options.segment_bytes))
        for number in range(options.topics):
            topic = CreatableTopic(
                name=f"topic-{number}",
                num_partitions=options.partitions,
                replication_factor=1,
                configs=[config],
            )
            request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
            code = await self._ask_until_settled(client, request)
            client.trace(f"created topic-{number}: {code.name}")
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self.workspace.problem(client.name, f"CreateTopics: {code.name}")
            self.workspace.partitions += [
                TopicPartition(f"topic-{number}", index) for index in range(options.partitions)
            ]

    async def _ask_until_settled(
        self, client: SimulatedClient, request: CreateTopicsRequest
    ) -> ErrorCode:
        while True:
            try:
                answer = await client.call(request, CreateTopicsResponse)
            except PeerError:
                await client.sleep(0.05)
                continue
            code = ErrorCode(answer.topics[0].error_code)
            if code not in RETRIABLE:
                return code
            await client.sleep(0.05)

    async def _when_there_are_topics(
        self, client: SimulatedClient, run: Callable[[], object]
    ) -> None:
        while not self.workspace.partitions:
            if self.workspace.is_over:
                return
            await client.sleep(0.01)
        await run()  # type: ignore[misc]

    # The faults

    def _arrange_faults(self) -> None:
        options, random, simulation = self.options, self._random, self.simulation
        end_us = int(options.duration_s * SECOND_US)
        for count, fault in (
            (options.power_cuts, self._cut_power),
            (options.kills, self._kill),
            (options.restarts, self._restart_cleanly),
            (options.clock_jumps, self._jump_clock),
        ):
            for _ in range(count):
                simulation.at(random.randrange(end_us), fault)

    def _cut_power(self) -> None:
        """At an operation of the disk a little later, which may be in the middle of anything."""
        if self.node.is_alive and not self._faults_are_over:
            self.node.disk.cut_after_operations(self._random.choice((1, 2, 5, 20, 100)))

    def _kill(self) -> None:
        if self.node.is_alive and not self._faults_are_over:
            self.node.kill()
            self._node_went_down()

    def _restart_cleanly(self) -> None:
        if self.node.is_alive and not self._faults_are_over:
            self.node.stop()
            self.simulation.after(50 * MS_US, self._start_again_if_down)

    def _jump_clock(self) -> None:
        jump_ms = self._random.choice((-1_000_000, -5_000, 5_000, 1_000_000))
        self.simulation.trace("node-1", f"clock jumps by {jump_ms} ms")
        self.node.host.clock_skew_ms += jump_ms

    def _node_went_down(self) -> None:
        self.simulation.trace("node-1", "is down")
        self._start_later()

    def _start_later(self) -> None:
        if not self._restart_is_due:
            self._restart_is_due = True
            self.simulation.after(self._random.randrange(500 * MS_US), self._start_again)

    def _start_again_if_down(self) -> None:
        if self.node.is_alive:
            self.simulation.after(50 * MS_US, self._start_again_if_down)
        else:
            self._start_later()

    def _start_again(self) -> None:
        self._restart_is_due = False
        if self.node.is_alive:
            return
        if not self.node.start() and not self.node.host.is_alive and self.node.start_error:
            self.failures.append(f"the node does not start again: {self.node.start_error}")

    def _end_faults(self) -> None:
        self._faults_are_over = True
        self.simulation.trace("scenario", "faults end")
        self.network.faults = NetworkFaults()
        # A character is for life: what is slow now, or about to be cut, is replaced.
        self.network.cut_all(lambda transport: True)
        self.node.host.faults = HostFaults()
        self.node.disk.faults = DiskFaults(torn_sector=0.05)
        self.node.disk.cut_after_operations(None)
        if not self.node.is_alive:
            self._start_later()

    # What must hold

    def _has_failed(self) -> bool:
        return bool(self.failures or self.workspace.problems or self.node.bugs)

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

    def _read_everything(self) -> None:
        for name, read_committed in (("last-reader", False), ("last-committed", True)):
            client = self._make_client(name)
            client.start(read_everything(client, self.workspace, read_committed=read_committed))
        self._wait_for("the last readers", self._clients_are_done)

    def _check(self) -> None:
        for client in self.clients:
            for task in client.tasks:
                if task.error is not None:
                    self.failures.append(f"{client.name}: {task.error!r}")
            if client.errors.getvalue():
                self.failures.append(f"{client.name}: {client.errors.getvalue()}")
        report = check_history(self.workspace.history)
        self.failures += [str(anomaly) for anomaly in report.anomalies]
        self.simulation.trace("scenario", f"sent {report.sent}, acknowledged {report.acknowledged}")

    def _result(self) -> Result:
        report = check_history(self.workspace.history)
        return Result(
            seed=self.simulation.seed,
            options=self.options,
            failures=[*self.failures, *self.workspace.problems, *self.node.bugs],
            trace_digest=self.simulation.trace_digest(),
            trace=self.simulation.lines or [],
            simulated_s=self.simulation.now_us / SECOND_US,
            events=self.simulation.events_run,
            acknowledged=report.acknowledged,
            polled=report.polled,
            lives=self.node.lives,
        )


def run_seed(seed: int, *, keeps_trace: bool = False) -> Result:
    """Runs one seed; what is wrong is in the result's failures."""
    return Scenario(seed, keeps_trace=keeps_trace).run()
