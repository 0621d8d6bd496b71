"""One Parquet file of a lake, as its table's log describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Span:
    """Which records of an archived topic a file holds; all bounds are inclusive."""

    topic: str
    partition_min: int
    partition_max: int
    offset_min: int
    offset_max: int
    timestamp_min_us: int
    timestamp_max_us: int

    def joined(self, other: "Span") -> "Span":
        """The span of both; they must be of one topic."""
        assert self.topic == other.topic
        return Span(
            self.topic,
            min(self.partition_min, other.partition_min),
            max(self.partition_max, other.partition_max),
            min(self.offset_min, other.offset_min),
            max(self.offset_max, other.offset_max),
            min(self.timestamp_min_us, other.timestamp_min_us),
            max(self.timestamp_max_us, other.timestamp_max_us),
        )


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file by its path below the table's root; `span` is None in tables that are no archive.

    Partition values are text as in a Delta log, None for null.
    """

    path: str
    size_bytes: int
    rows: int
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    span: Span | None = None

    @property
    def name(self) -> str:
        """The file's own name, which no other file of the table ever has."""
        return self.path.rpartition("/")[2]

    @property
    def folder(self) -> str:
        """The partition folder, without a slash at its end; empty at the root."""
        return self.path.rpartition("/")[0]
