"""What the clients of one workload share: topics, values that are used once, and the history."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.history import Operation
from tidelog.testing.simulation.client import SimulatedClient

_WAIT_S = 0.01


@dataclass(slots=True)
class Workspace:
    """The topics that clients work on, and everything they did and were told."""

    make_client: Callable[[str], SimulatedClient]
    replication_factor: int = 1
    """Of the topics that are made for it."""
    may_be_lost: Callable[[TopicPartition, int], bool] = lambda partition, offset: False
    """Whether what was committed at an offset was lost in a way that its topic allows."""
    partitions: list[TopicPartition] = field(default_factory=list)
    history: list[Operation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What a client saw that must never be; each ends the simulation as failed."""
    is_over: bool = False
    """Clients finish what they are at and begin nothing new."""
    _values: int = 0

    def next_value(self) -> bytes:
        self._values += 1
        return b"v%d" % self._values

    def problem(self, who: str, what: str) -> None:
        self.problems.append(f"{who}: {what}")

    def start_when_ready(
        self, client: SimulatedClient, run: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Begin a client's task once the workload's topics are there."""

        async def wait_and_run() -> None:
            while not self.partitions:
                if self.is_over:
                    return
                await client.sleep(_WAIT_S)
            await run()

        client.start(wait_and_run())
