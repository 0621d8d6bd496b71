"""Topics that change while others work: what was acknowledged holds, over all restarts.

Each topic has one client that changes it, and so knows how it must be, and often one that writes
to it by name all the time, whatever becomes of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.protocol.apis.produce import ProduceResponse
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerError
from tidelog.testing.simulation.client import SimulatedClient
from tidelog.testing.simulation.options import Options
from tidelog.testing.simulation.workloads.changing_topic import ChangingTopic
from tidelog.testing.simulation.workloads.plain_sends import plain_batch, produce_request
from tidelog.testing.simulation.workloads.workspace import Workspace


class TopicChanges:
    """Topics with one client each that changes them."""

    def __init__(self, workspace: Workspace, options: Options) -> None:
        self.workspace = workspace
        self._options = options
        self._topics: list[tuple[SimulatedClient, ChangingTopic]] = []

    @staticmethod
    def is_drawn(options: Options) -> bool:
        return options.changing_topics > 0

    def start(self) -> None:
        options, workspace = self._options, self.workspace
        for number in range(options.changing_topics):
            client = workspace.make_client(f"changer-{number}")
            topic = ChangingTopic(
                client,
                workspace,
                f"changing-{number}",
                loses_power=True,
                is_killed=True,
            )
            self._topics.append((client, topic))
            client.start(topic.run())
            if client.random.random() < 0.6:
                other = workspace.make_client(f"changer-{number}-other")
                other.start(self._write_on(other, topic))

    async def _write_on(self, client: SimulatedClient, topic: ChangingTopic) -> None:
        while not self.workspace.is_over:
            value = self.workspace.next_value()
            topic.others_values.add(value)
            partition = TopicPartition(topic.name, client.random.randrange(3))
            request = produce_request(
                client.random.choice((1, -1)), {partition: plain_batch(client, [value])}
            )
            try:
                await client.call(request, ProduceResponse, version_max=12)
            except PeerError:
                pass
            await client.sleep(client.random.random() * 0.04)

    def wind_up(self) -> None:
        for client, topic in self._topics:
            client.start(topic.look())

    def failures(self) -> Iterable[str]:
        return ()
