"""What a partitioner is given and what it answers."""

from dataclasses import dataclass
from typing import Protocol

from tidelog.client.topic_layout import TopicLayout


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
