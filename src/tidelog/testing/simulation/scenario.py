"""One seed from beginning to end: a node, clients, faults, and what must hold.

The seed draws everything: how many clients of which kind, which faults and how often, when the node
is killed or loses power. First there are faults for a while; then they stop, and everything that is
under way must come to an end (liveness): a fault that heals by itself would hide a request that is
stuck for ever. In the end all partitions are read and the whole history is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
from tidelog.testing.simulation.fault_schedule import FaultSchedule
from tidelog.testing.simulation.host import HostFaults
from tidelog.testing.simulation.network import Network, NetworkFaults
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.simulation import SECOND_US, Simulation
from tidelog.testing.simulation.workloads.consuming import Consumer, read_everything
from tidelog.testing.simulation.workloads.producing import RETRIABLE, IdempotentProducer
from tidelog.testing.simulation.workloads.workspace import Workspace

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
            disk_faults=DiskFaults(short_write=options.short_writes, torn_sector=0.05),
            host_faults=HostFaults(late_jobs=options.late_jobs, late_turns=options.late_turns),
        )
        self.faults = FaultSchedule(simulation, self.network, self.node, options)
        self.workspace = Workspace()
        self.clients: list[SimulatedClient] = []
        self.producers: list[IdempotentProducer] = []
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
        self._make_clients()
        self.faults.arrange()
        simulation.run_until(int(options.duration_s * SECOND_US), unless=self._has_failed)
        if self._has_failed():
            return
        self.faults.end()
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

    # What must hold

    def _has_failed(self) -> bool:
        return bool(
            self.failures or self.faults.failures or self.workspace.problems or self.node.bugs
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
            failures=[
                *self.failures,
                *self.faults.failures,
                *self.workspace.problems,
                *self.node.bugs,
            ],
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
