"""What the clients of a simulation share: topics, values that are used once, and the history."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.history import Operation


@dataclass(slots=True)
class Workspace:
    """The topics that clients work on, and everything they did and were told."""

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
