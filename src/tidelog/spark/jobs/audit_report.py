"""What an audit found, as values, as JSON and in words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tidelog.spark.jobs.archived_counts import ArchivedCount
from tidelog.spark.jobs.gaps import Gap, GapKind


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """The offsets from `first` to `last`, both of them included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """One partition. Offsets and times are None where there is no record.

    `gaps` and `duplicates` are the first ones only; the counts are of all. A duplicate is a record
    whose offset was there before. `order_violations` are records whose offset is not above that of
    the one read before, `times_back` those with an earlier time, which producers may cause.
    """

    topic: str
    partition: int
    records: int
    size_bytes: int
    checksum: str
    """The sum of all records' hashes, in hexadecimal: the same in whatever order they were read."""
    first_offset: int | None = None
    last_offset: int | None = None
    first_time_us: int | None = None
    last_time_us: int | None = None
    gap_counts: Mapping[GapKind, int] = field(default_factory=dict)
    missing_offsets: Mapping[GapKind, int] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    duplicate_records: int = 0
    duplicates: tuple[OffsetSpan, ...] = ()
    order_violations: int = 0
    times_back: int = 0

    @property
    def lost_offsets(self) -> int:
        return self.missing_offsets.get(GapKind.LOST, 0)

    def problems(self) -> list[str]:
        """In words, what must not be."""
        place = f"{self.topic}-{self.partition}"
        found = []
        if self.lost_offsets:
            spans = ", ".join(
                f"{gap.first}-{gap.last}" for gap in self.gaps if gap.kind is GapKind.LOST
            )
            found.append(f"{place}: {self.lost_offsets} offsets are missing ({spans})")
        if self.duplicate_records:
            spans = ", ".join(f"{each.first}-{each.last}" for each in self.duplicates)
            found.append(f"{place}: {self.duplicate_records} records are there twice ({spans})")
        if self.order_violations:
            found.append(f"{place}: {self.order_violations} records are out of order")
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "records": self.records,
            "bytes": self.size_bytes,
            "checksum": self.checksum,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "first_time": time_text(self.first_time_us),
            "last_time": time_text(self.last_time_us),
            "gap_counts": {kind.value: count for kind, count in self.gap_counts.items()},
            "missing_offsets": {kind.value: count for kind, count in self.missing_offsets.items()},
            "gaps": [
                {"first": gap.first, "last": gap.last, "kind": gap.kind.value} for gap in self.gaps
            ],
            "duplicate_records": self.duplicate_records,
            "duplicates": [{"first": each.first, "last": each.last} for each in self.duplicates],
            "order_violations": self.order_violations,
            "times_back": self.times_back,
        }


@dataclass(frozen=True, slots=True)
class AuditReport:
    """All partitions that were looked at, in their order, and the counts of an archive.

    Counts are of all that was archived, also if only a part of it was looked at.
    """

    partitions: tuple[PartitionAudit, ...]
    counts: tuple[ArchivedCount, ...] = ()

    def problems(self) -> list[str]:
        """In words, what must not be; none if the audit is passed."""
        parts: tuple[PartitionAudit | ArchivedCount, ...] = (*self.partitions, *self.counts)
        return [problem for each in parts for problem in each.problems()]

    def to_json(self) -> dict[str, Any]:
        problems = self.problems()
        return {
            "passed": not problems,
            "problems": problems,
            "partitions": [each.to_json() for each in self.partitions],
            "counts": [each.to_json() for each in self.counts],
        }


def time_text(time_us: int | None) -> str | None:
    """A moment in ISO 8601, with milliseconds."""
    if time_us is None:
        return None
    try:
        moment = datetime.fromtimestamp(time_us // 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_us} us"
    return moment.replace(microsecond=time_us % 1_000_000).isoformat(timespec="milliseconds")
