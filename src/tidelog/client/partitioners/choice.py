"""What a partitioner is given and what it answers."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True, frozen=True)
class TopicLayout:
    """The partitions of a topic and the rack of each one's leader, in order of partition."""

    topic: str
    leader_racks: tuple[str | None, ...]

    @property
    def partition_count(self) -> int:
        return len(self.leader_racks)


@dataclass(slots=True, frozen=True)
class Choice:
    """A partition, and headers that the record gains on its way there."""

    partition: int
    headers: tuple[tuple[str, bytes], ...] = ()


class Partitioner(Protocol):
    """Chooses a partition for each record.

    `native` names the partitioner of librdkafka that gives the same answers; where there is one,
    the client leaves the choice to it, record by record, in C.
    """

    native: str | None

    def choose(self, layout: TopicLayout, key: bytes | None) -> Choice: ...
