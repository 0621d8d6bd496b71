"""Offsets without a record, and why there is none.

markers      a transaction's marker or the records of one that was aborted are there
compacted    the topic keeps the newest record of each key only
archived     the archive has been there and found no record (it cannot tell which of the above)
lost         nothing explains it, or an archive went on without them (--allow-data-loss)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.jobs.log_spans import LogSpans

GAP_COLUMNS = "topic string, partition int, first long, last long"


class GapKind(Enum):
    """Why offsets have no record; `lost` is what an audit must not find."""

    MARKERS = "markers"
    COMPACTED = "compacted"
    ARCHIVED = "archived"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Gap:
    """The offsets from `first` to `last`, both of them included."""

    first: int
    last: int
    kind: GapKind

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class Explanation(Protocol):
    """Tells why offsets have no record."""

    def explain(self, gaps: DataFrame) -> DataFrame:
        """The gaps (GAP_COLUMNS) with the column `kind`, the value of a GapKind."""
        ...


class Unexplained:
    """Nothing is known of the topic: each gap is a loss."""

    def explain(self, gaps: DataFrame) -> DataFrame:
        return gaps.withColumn("kind", F.lit(GapKind.LOST.value))


class Compacted:
    """The topic is compacted: a gap is what is to be expected."""

    def explain(self, gaps: DataFrame) -> DataFrame:
        return gaps.withColumn("kind", F.lit(GapKind.COMPACTED.value))


@dataclass(frozen=True, slots=True)
class Archived:
    """Gaps in an archive, given the offsets `[start, end)` that it covers.

    `holes` are those of them that were lost before they could be archived.
    """

    coverage: Mapping[TopicPartition, tuple[int, int]]
    holes: Mapping[TopicPartition, Sequence[tuple[int, int]]] = field(default_factory=dict)

    def explain(self, gaps: DataFrame) -> DataFrame:
        if self.holes:
            gaps = self._cut_at_holes(gaps)
        covered = gaps.sparkSession.createDataFrame(
            [(*name, start, end) for name, (start, end) in self.coverage.items()],
            "topic string, partition int, start long, end long",
        )
        is_covered = (F.col("first") >= F.col("start")) & (F.col("last") < F.col("end"))
        if self.holes:
            is_covered &= ~F.col("is_hole")
        kind = F.when(is_covered, GapKind.ARCHIVED.value).otherwise(GapKind.LOST.value)
        joined = gaps.join(F.broadcast(covered), ["topic", "partition"], "left")
        return joined.withColumn("kind", kind).drop("start", "end", "is_hole")

    def _cut_at_holes(self, gaps: DataFrame) -> DataFrame:
        """Gaps in pieces that are in a hole or in none, which `is_hole` says."""
        holes = {tuple(name): list(each) for name, each in self.holes.items()}

        def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                pieces = [
                    {**row, "first": first, "last": last, "is_hole": is_hole}
                    for row in batch.to_pylist()
                    for first, last, is_hole in cut_at_holes(
                        row["first"], row["last"], holes.get((row["topic"], row["partition"]), [])
                    )
                ]
                schema = batch.schema.append(pa.field("is_hole", pa.bool_()))
                yield pa.RecordBatch.from_pylist(pieces, schema)

        return gaps.mapInArrow(cut, f"{GAP_COLUMNS}, is_hole boolean")


def cut_at_holes(
    first: int, last: int, holes: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int, bool]]:
    """The offsets `first` to `last` in pieces, and whether each is within a hole `[start, end)`."""
    for start, end in sorted(holes):
        low, high = max(first, start), min(last, end - 1)
        if low > high:
            continue
        if first < low:
            yield first, low - 1, False
        yield low, high, True
        first = high + 1
    if first <= last:
        yield first, last, False


@dataclass(frozen=True, slots=True)
class SeenInLog:
    """Gaps of a topic that is not compacted: the log is asked what stands there."""

    bootstrap: str

    def explain(self, gaps: DataFrame) -> DataFrame:
        bootstrap = self.bootstrap

        def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return look_into_log(bootstrap, batches)

        ordered = gaps.repartition("topic", "partition").sortWithinPartitions(
            "topic", "partition", "first"
        )
        return ordered.mapInArrow(look, f"{GAP_COLUMNS}, kind string")


def look_into_log(bootstrap: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: gaps, sorted by partition and offset, with their kinds."""
    spans: dict[TopicPartition, LogSpans] = {}
    for batch in batches:
        kinds = []
        for row in batch.to_pylist():
            name = TopicPartition(row["topic"], row["partition"])
            if name not in spans:
                # The gaps of a partition follow each other: what was fetched for the last one
                # often holds the next one.
                spans = {name: LogSpans(bootstrap, name)}
            holds = spans[name].holds_no_data(row["first"], row["last"])
            kinds.append((GapKind.MARKERS if holds else GapKind.LOST).value)
        yield batch.append_column("kind", pa.array(kinds, pa.string()))
