"""Idempotent producers and consumers on shared topics: everything lands once, in order."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.testing.history import check_history
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.workloads.consuming import read_everything
from tidelog.testing.simulation.workloads.fetch_session import draw_consumer
from tidelog.testing.simulation.workloads.partition_ends import PartitionEnds
from tidelog.testing.simulation.workloads.producing import IdempotentProducer
from tidelog.testing.simulation.workloads.topics import create_topics
from tidelog.testing.simulation.workloads.workspace import Workspace


class Records:
    """The plainest use of a log."""

    def __init__(self, workspace: Workspace, options: Options) -> None:
        self.workspace = workspace
        self._options = options

    @staticmethod
    def is_drawn(options: Options) -> bool:
        return options.producers > 0

    def start(self) -> None:
        options, workspace = self._options, self.workspace
        admin = workspace.make_client("admin")
        names = [f"topic-{number}" for number in range(options.topics)]
        configs = {"segment.bytes": str(options.segment_bytes)}
        admin.start(create_topics(admin, workspace, names, options.partitions, configs))
        for number in range(options.producers):
            client = workspace.make_client(f"producer-{number}")
            producer = IdempotentProducer(client, workspace, acks=-1 if options.acks_all else 1)
            workspace.start_when_ready(client, producer.run)
        for number in range(options.consumers):
            client = workspace.make_client(f"consumer-{number}")
            kind = draw_consumer(client, options)
            consumer = kind(client, workspace, read_committed=bool(number % 2))
            workspace.start_when_ready(client, consumer.run)

        if options.nodes > 1:
            client = workspace.make_client("end-watcher")
            workspace.start_when_ready(client, PartitionEnds(client, workspace).run)

    def wind_up(self) -> None:
        workspace = self.workspace
        for name, read_committed in (("last-reader", False), ("last-committed", True)):
            client = workspace.make_client(name)
            client.start(
                read_everything(
                    client,
                    workspace.partitions,
                    workspace.history,
                    read_committed=read_committed,
                )
            )

    def failures(self) -> Iterable[str]:
        return map(str, check_history(self.workspace.history).anomalies)
