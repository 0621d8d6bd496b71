"""Offsets as Spark and its users write them: ranges, and JSON by topic and partition."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition from `start` up to and without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets it spans; compaction and transactions may leave fewer records."""
        return self.end - self.start
