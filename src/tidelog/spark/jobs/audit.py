"""Audit a topic or an archive: is each record there, once, in order, and with its bytes.

Rows become runs of offsets where they are read (`offset_runs`). Sorted by their first offsets, runs
show what is missing between them, and what overlaps is there twice.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.jobs.archived_counts import ArchivedCount
from tidelog.spark.jobs.audit_report import AuditReport, OffsetSpan, PartitionAudit
from tidelog.spark.jobs.gaps import GAP_COLUMNS, Explanation, Gap, GapKind, Unexplained
from tidelog.spark.jobs.offset_runs import offset_runs

SHOWN_MAX = 20

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""By partition, the offsets `[start, end)` that are to be there."""


@dataclass(slots=True)
class _Gaps:
    """The gaps of one partition: how many of each kind, of how many offsets, and the first."""

    counts: dict[GapKind, int] = field(default_factory=dict)
    offsets: dict[GapKind, int] = field(default_factory=dict)
    first: list[Gap] = field(default_factory=list)


def audit(
    rows: DataFrame,
    *,
    ranges: Ranges | None = None,
    explanation: Explanation | None = None,
    origin: Column | None = None,
    shown_max: int = SHOWN_MAX,
    counts: tuple[ArchivedCount, ...] = (),
) -> AuditReport:
    """Audit rows with the columns key, value, topic, partition, offset and timestamp.

    With `ranges` records are also missing before the first and after the last one of a partition.
    `explanation` says which gaps are as they should be; without it all are losses. `origin` names
    the file that a row comes from, in whose order it is read. Of gaps and duplicates the first
    `shown_max` of each partition are listed. `counts` are those of an archive, and become part of
    the report. The rows are read once.
    """
    with _kept(offset_runs(rows, origin)) as runs:
        marked = _with_reached(runs)
        sums = _sums(marked)
        duplicates = _duplicates(marked, shown_max) if _any_twice(sums) else {}
        gaps: dict[TopicPartition, _Gaps] = {}
        if (missing := _gaps(marked, sums, ranges or {})) is not None:
            gaps = _explained((explanation or Unexplained()).explain(missing), shown_max)
    names = sorted({*sums, *(ranges or {})})
    return AuditReport(
        tuple(
            _partition(name, sums.get(name), gaps.get(name, _Gaps()), duplicates.get(name, []))
            for name in names
        ),
        counts,
    )


def _partition(
    name: TopicPartition,
    row: Any,
    gaps: _Gaps,
    duplicates: list[OffsetSpan],
) -> PartitionAudit:
    """`row` is what `_sums` has of the partition; None if it has no record."""
    missing: dict[str, Any] = {
        "gap_counts": gaps.counts,
        "missing_offsets": gaps.offsets,
        "gaps": tuple(gaps.first),
    }
    if row is None:
        return PartitionAudit(name.topic, name.partition, 0, 0, _hex(0), **missing)
    return PartitionAudit(
        name.topic,
        name.partition,
        row.records,
        row.size_bytes,
        _hex(int(row.checksum)),
        row.first,
        row.last,
        row.time_min_us,
        row.time_max_us,
        duplicate_records=row.twice,
        duplicates=tuple(duplicates),
        order_violations=row.order_violations,
        times_back=row.times_back,
        **missing,
    )


def _with_reached(runs: DataFrame) -> DataFrame:
    """Runs with `reached`, the last offset of those before, and `twice`, the offsets below that."""
    before = (
        Window.partitionBy("topic", "partition")
        .orderBy("first", "last")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    # A run that begins below `reached` lies, up to there, within the run that reached it.
    below = F.least("last", "reached") - F.col("first") + 1
    return runs.withColumn("reached", F.max("last").over(before)).withColumn(
        "twice", F.when(F.col("reached") >= F.col("first"), below).otherwise(0)
    )


def _sums(marked: DataFrame) -> dict[TopicPartition, Any]:
    rows = (
        marked.groupBy("topic", "partition")
        .agg(
            F.sum(F.col("last") - F.col("first") + 1).alias("records"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.sum("size_bytes").alias("size_bytes"),
            F.sum(F.col("checksum").cast("decimal(38,0)")).alias("checksum"),
            F.min("time_min_us").alias("time_min_us"),
            F.max("time_max_us").alias("time_max_us"),
            F.sum("order_violations").alias("order_violations"),
            F.sum("times_back").alias("times_back"),
            F.sum("twice").alias("twice"),
        )
        .collect()
    )
    return {TopicPartition(row.topic, row.partition): row for row in rows}


def _any_twice(sums: Mapping[TopicPartition, Any]) -> bool:
    return any(row.twice for row in sums.values())


def _gaps(
    marked: DataFrame, sums: Mapping[TopicPartition, Any], ranges: Ranges
) -> DataFrame | None:
    """All gaps, with those at the ends of the ranges; None if there are none."""
    edges = []
    for name, (start, end) in ranges.items():
        row = sums.get(name)
        if row is None:
            spans = [(start, end - 1)]
        else:
            spans = [(start, min(row.first, end) - 1), (max(row.last + 1, start), end - 1)]
        edges += [(*name, first, last) for first, last in spans if first <= last]
    inner = marked.where(F.col("first") > F.col("reached") + 1).select(
        "topic",
        "partition",
        (F.col("reached") + 1).alias("first"),
        (F.col("first") - 1).alias("last"),
    )
    has_inner = any(row.records - row.twice < row.last - row.first + 1 for row in sums.values())
    if not edges:
        return inner if has_inner else None
    at_edges = marked.sparkSession.createDataFrame(edges, GAP_COLUMNS)
    return inner.unionByName(at_edges) if has_inner else at_edges


def _explained(explained: DataFrame, shown_max: int) -> dict[TopicPartition, _Gaps]:
    """The gaps of each partition: all of them counted by kind, and the first ones of each kind."""
    kind = Window.partitionBy("topic", "partition", "kind")
    size = F.col("last") - F.col("first") + 1
    rows = (
        explained.withColumn("number", F.row_number().over(kind.orderBy("first")))
        .withColumn("gaps", F.count("*").over(kind))
        .withColumn("offsets", F.sum(size).over(kind))
        .where(F.col("number") <= max(1, shown_max))
        .collect()
    )
    found: dict[TopicPartition, _Gaps] = defaultdict(_Gaps)
    for row in rows:
        each = found[TopicPartition(row.topic, row.partition)]
        each.counts[GapKind(row.kind)] = row.gaps
        each.offsets[GapKind(row.kind)] = row.offsets
        each.first.append(Gap(row.first, row.last, GapKind(row.kind)))
    for each in found.values():
        # If not all can be shown, losses go before the others.
        each.first.sort(key=lambda gap: (gap.kind is not GapKind.LOST, gap.first))
        del each.first[shown_max:]
        each.first.sort(key=lambda gap: gap.first)
    return found


def _duplicates(marked: DataFrame, shown_max: int) -> dict[TopicPartition, list[OffsetSpan]]:
    overlaps = marked.where("twice > 0").select(
        "topic", "partition", "first", F.least("last", "reached").alias("last")
    )
    number = F.row_number().over(Window.partitionBy("topic", "partition").orderBy("first"))
    rows = overlaps.withColumn("number", number).where(F.col("number") <= shown_max)
    found: dict[TopicPartition, list[OffsetSpan]] = defaultdict(list)
    for row in rows.orderBy("topic", "partition", "number").collect():
        found[TopicPartition(row.topic, row.partition)].append(OffsetSpan(row.first, row.last))
    return found


@contextmanager
def _kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Rows that are computed once, however often they are used."""
    kept = rows.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _hex(checksum: int) -> str:
    return f"{checksum & (1 << 64) - 1:016x}"
