"""Audit a topic or an archive: is each record there, once, in order, and with its bytes.

Rows become runs of offsets where they are read (`offset_runs`). Sorted by their first offsets, runs
show what is missing between them, and what overlaps is there twice.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.jobs.audit_report import AuditReport, OffsetSpan, PartitionAudit
from tidelog.spark.jobs.gaps import GAP_COLUMNS, Explanation, Gap, GapKind, Unexplained
from tidelog.spark.jobs.offset_runs import offset_runs

SHOWN_MAX = 20

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""By partition, the offsets `[start, end)` that are to be there."""


def audit(
    rows: DataFrame,
    *,
    ranges: Ranges | None = None,
    explanation: Explanation | None = None,
    origin: Column | None = None,
    shown_max: int = SHOWN_MAX,
) -> AuditReport:
    """Audit rows with the columns key, value, topic, partition, offset and timestamp.

    With `ranges` records are also missing before the first and after the last one of a partition.
    `explanation` says which gaps are as they should be; without it all are losses. `origin` names
    the file that a row comes from, in whose order it is read. Of gaps and duplicates the first
    `shown_max` of each partition are listed. The rows are read once.
    """
    with _kept(offset_runs(rows, origin)) as runs:
        marked = _with_reached(runs)
        sums = _sums(marked)
        duplicates = _duplicates(marked, shown_max) if _any_twice(sums) else {}
        gaps: dict[TopicPartition, list[Gap]] = {}
        counts: dict[TopicPartition, dict[GapKind, tuple[int, int]]] = {}
        if (missing := _gaps(marked, sums, ranges or {})) is not None:
            with _kept((explanation or Unexplained()).explain(missing)) as explained:
                gaps, counts = _listed(explained, shown_max), _counted(explained)
    names = sorted({*sums, *(ranges or {})})
    return AuditReport(
        tuple(
            _partition(name, sums.get(name), gaps.get(name, []), counts.get(name, {}), duplicates)
            for name in names
        )
    )


def _partition(
    name: TopicPartition,
    row: Any,
    gaps: list[Gap],
    counts: Mapping[GapKind, tuple[int, int]],
    duplicates: Mapping[TopicPartition, list[OffsetSpan]],
) -> PartitionAudit:
    """`row` is what `_sums` has of the partition; None if it has no record."""
    missing: dict[str, Any] = {
        "gap_counts": {kind: count for kind, (count, _) in counts.items()},
        "missing_offsets": {kind: offsets for kind, (_, offsets) in counts.items()},
        "gaps": tuple(gaps),
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
        duplicates=tuple(duplicates.get(name, ())),
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


def _counted(explained: DataFrame) -> dict[TopicPartition, dict[GapKind, tuple[int, int]]]:
    counts: dict[TopicPartition, dict[GapKind, tuple[int, int]]] = defaultdict(dict)
    rows = explained.groupBy("topic", "partition", "kind").agg(
        F.count("*").alias("gaps"), F.sum(F.col("last") - F.col("first") + 1).alias("offsets")
    )
    for row in rows.collect():
        name = TopicPartition(row.topic, row.partition)
        counts[name][GapKind(row.kind)] = (row.gaps, row.offsets)
    return counts


def _listed(explained: DataFrame, shown_max: int) -> dict[TopicPartition, list[Gap]]:
    """The first gaps of each partition, losses before the others."""
    is_lost = F.col("kind") == GapKind.LOST.value
    gaps: dict[TopicPartition, list[Gap]] = defaultdict(list)
    for row in _first_of_each(explained, shown_max, is_lost.desc(), F.col("first")):
        name = TopicPartition(row.topic, row.partition)
        gaps[name].append(Gap(row.first, row.last, GapKind(row.kind)))
    for each in gaps.values():
        each.sort(key=lambda gap: gap.first)
    return gaps


def _duplicates(marked: DataFrame, shown_max: int) -> dict[TopicPartition, list[OffsetSpan]]:
    overlaps = marked.where("twice > 0").select(
        "topic", "partition", "first", F.least("last", "reached").alias("last")
    )
    found: dict[TopicPartition, list[OffsetSpan]] = defaultdict(list)
    for row in _first_of_each(overlaps, shown_max, F.col("first")):
        found[TopicPartition(row.topic, row.partition)].append(OffsetSpan(row.first, row.last))
    return found


def _first_of_each(rows: DataFrame, shown_max: int, *order: Column) -> list[Any]:
    number = F.row_number().over(Window.partitionBy("topic", "partition").orderBy(*order))
    chosen = rows.withColumn("number", number).where(F.col("number") <= shown_max)
    return chosen.orderBy("topic", "partition", "number").collect()


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
