"""The partitions of a topic, as partitioners see them."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class TopicLayout:
    """The partitions of a topic and the rack of each one's leader, in order of partition."""

    topic: str
    leader_racks: tuple[str | None, ...]

    @property
    def partition_count(self) -> int:
        return len(self.leader_racks)
