"""Read an archive back: exactly the records of an offset range, in their order.

Files and then row groups are chosen by their statistics. Folders cut a partition by time and not by
offset, so files may interleave: row groups are taken in the order of their first offsets, and rows
are given out once no row group that is still to come can hold a lower offset.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.lake.coverage import covered, covered_range
from tidelog.spark.lake.data_file import DataFile
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.holes import Hole, kept_holes, overlapping
from tidelog.spark.lake.open_files import OpenFiles
from tidelog.spark.lake.opening import open_table
from tidelog.spark.lake.record_counts import RecordCount, kept_count
from tidelog.spark.lake.same_topic import kept_topic_id
from tidelog.spark.lake.table import Snapshot, Table
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.schema import arrow_schema

OPTION_NAMES = frozenset({"lake"})
"""Options of the source that this package serves, in lower case."""

_ROWS_MAX = 20_000
_BATCH_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Records whose timestamp is in `[start_us, end_us)`; a record without one is in none."""

    start_us: int = -(2**63)
    end_us: int = 2**63 - 1


class LakeTable:
    """An archive as it was when first looked at: coverage and records are of one snapshot."""

    def __init__(self, path: str | Path) -> None:
        self._table: Table = open_table(path)
        if not self._table.layout.is_archive:
            raise LakeError(f"the lake at {self._table.root} is no archive of topics")

    @cached_property
    def snapshot(self) -> Snapshot:
        return self._table.snapshot()

    @property
    def table(self) -> Table:
        return self._table

    def topics(self) -> list[str]:
        """The topics that have records in the lake."""
        return sorted({file.span.topic for file in self.snapshot.files if file.span is not None})

    def coverage(self, topic: str) -> dict[int, tuple[int, int]]:
        """By partition, the offsets `[start, end)` that the lake holds, but for its holes."""
        return covered(topic, self.snapshot.transaction)

    def holes(self, topic: str) -> dict[int, list[Hole]]:
        """By partition, what brokers had lost before it was archived, where there is any."""
        found = {
            partition: kept_holes(topic, partition, self.snapshot.transaction)
            for partition in self.coverage(topic)
        }
        return {partition: holes for partition, holes in found.items() if holes}

    def losses(self, wanted: OffsetRange) -> list[str]:
        """In words, what of a range brokers had lost before it was archived."""
        holes = kept_holes(wanted.topic, wanted.partition, self.snapshot.transaction)
        return [
            f"{wanted.name}: offsets {start} to {end} were lost before they could be archived"
            for start, end in overlapping(holes, wanted.start, wanted.end)
        ]

    def record_counts(self, topic: str) -> dict[int, RecordCount]:
        """By partition, how many records were archived, where that is known."""
        found = {
            partition: kept_count(topic, partition, self.snapshot.transaction)
            for partition in self.coverage(topic)
        }
        return {partition: count for partition, count in found.items() if count is not None}

    def topic_id(self, topic: str) -> bytes | None:
        """The id of the topic that was archived, if it is known."""
        return kept_topic_id(topic, self.snapshot.transaction)

    def read_range(
        self,
        wanted: OffsetRange,
        include_headers: bool = True,
        *,
        times: TimeRange | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The records of a range in the order of their offsets, in the source's columns.

        Memory is bounded by a batch and the row groups whose offsets interleave. The range must be
        covered: LakeError otherwise.
        """
        held = covered_range(wanted.topic, wanted.partition, self.snapshot.transaction)
        start, end = held or (0, 0)
        if wanted.size > 0 and not start <= wanted.start <= wanted.end <= end:
            raise LakeError(
                f"the lake at {self._table.root} holds {wanted.topic}-{wanted.partition} from "
                f"{start} to {end}, not {wanted.start} to {wanted.end}"
            )
        return self._read(wanted, include_headers, times)

    def _read(
        self, wanted: OffsetRange, include_headers: bool, times: TimeRange | None
    ) -> Iterator[pa.RecordBatch]:
        # Ordered by the lowest offset each may hold; the number breaks ties.
        queue: list[tuple[int, int, DataFile | _RowGroup]] = []
        for file in self.snapshot.files:
            if _may_hold(file, wanted, times):
                lowest = wanted.start if file.span is None else file.span.offset_min
                queue.append((lowest, len(queue), file))
        count = len(queue)
        heapq.heapify(queue)
        waiting: list[pa.Table] = []
        with OpenFiles(self._table) as files:
            while queue:
                lowest, _, item = heapq.heappop(queue)
                if isinstance(item, DataFile):
                    for group in _row_groups(files, item, wanted):
                        heapq.heappush(queue, (group.lowest, count, group))
                        count += 1
                    continue
                ready, waiting = _take_below(waiting, lowest)
                yield from _batches(ready, include_headers)
                rows = self._read_group(files, item, wanted, include_headers, times)
                if len(rows):
                    waiting.append(rows)
        yield from _batches(_in_order(waiting), include_headers)

    def _read_group(
        self,
        files: OpenFiles,
        group: "_RowGroup",
        wanted: OffsetRange,
        include_headers: bool,
        times: TimeRange | None,
    ) -> pa.Table:
        """The records of the range in one row group, in the order of their offsets."""
        schema = arrow_schema(include_headers)
        layout = self._table.layout
        held = [each for each in schema.names if each not in layout.partition_columns]
        rows = files.read_row_group(group.file, group.index, held)
        rows = _with_constants(rows, schema, group.file)
        chosen = _chosen(rows, wanted, times)
        if not pc.all(chosen, skip_nulls=False).as_py():
            rows = rows.filter(chosen)
        offsets = rows["offset"].to_numpy()
        if len(offsets) > 1 and not bool(np.all(np.diff(offsets) > 0)):
            # Another writer's compaction does not know our order.
            rows = rows.take(np.argsort(offsets, kind="stable"))
        return rows


@dataclass(frozen=True, slots=True)
class _RowGroup:
    file: DataFile
    index: int
    lowest: int


def _row_groups(files: OpenFiles, file: DataFile, wanted: OffsetRange) -> Iterator[_RowGroup]:
    """Those of a file that may hold records of the range."""
    metadata = files.metadata(file)
    columns = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        low, high = _bounds(group, columns.get("partition"))
        if not low <= wanted.partition <= high:
            continue
        low, high = _bounds(group, columns.get("offset"))
        if low < wanted.end and high >= wanted.start:
            yield _RowGroup(file, index, int(max(low, wanted.start)))


def _may_hold(file: DataFile, wanted: OffsetRange, times: TimeRange | None) -> bool:
    span = file.span
    if span is None:
        return True
    if times is not None and (
        span.timestamp_max_us < times.start_us or span.timestamp_min_us >= times.end_us
    ):
        return False
    return (
        span.topic == wanted.topic
        and span.partition_min <= wanted.partition <= span.partition_max
        and span.offset_min < wanted.end
        and span.offset_max >= wanted.start
    )


def _bounds(group: Any, column: int | None) -> tuple[float, float]:
    statistics = None if column is None else group.column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return float("-inf"), float("inf")
    return statistics.min, statistics.max


def _with_constants(rows: pa.Table, schema: pa.Schema, file: DataFile) -> pa.Table:
    columns = []
    for column in schema:
        if column.name in file.partition_values:
            value = pa.scalar(file.partition_values[column.name]).cast(column.type)
            columns.append(pa.repeat(value, len(rows)))
        else:
            columns.append(rows[column.name].cast(column.type))
    return pa.table(columns, schema=schema)


def _chosen(rows: pa.Table, wanted: OffsetRange, times: TimeRange | None) -> Any:
    chosen = pc.and_(
        pc.and_(
            pc.greater_equal(rows["offset"], wanted.start), pc.less(rows["offset"], wanted.end)
        ),
        pc.and_(
            pc.equal(rows["partition"], wanted.partition), pc.equal(rows["topic"], wanted.topic)
        ),
    )
    if times is not None:
        moments = rows["timestamp"].cast(pa.int64())
        within = pc.and_(pc.greater_equal(moments, times.start_us), pc.less(moments, times.end_us))
        chosen = pc.and_(chosen, within)
    return chosen


def _take_below(waiting: list[pa.Table], bound: int) -> tuple[pa.Table | None, list[pa.Table]]:
    """Rows with offsets below the bound, in order, and what is left of each table."""
    ready, left = [], []
    for rows in waiting:
        cut = int(np.searchsorted(rows["offset"].to_numpy(), bound))
        if cut:
            ready.append(rows.slice(0, cut))
        if cut < len(rows):
            left.append(rows.slice(cut))
    return _in_order(ready), left


def _in_order(tables: list[pa.Table]) -> pa.Table | None:
    """Tables, each in order, as one in order."""
    if len(tables) < 2:
        return tables[0] if tables else None
    rows = pa.concat_tables(sorted(tables, key=lambda each: each["offset"][0].as_py()))
    offsets = rows["offset"].to_numpy()
    if bool(np.all(np.diff(offsets) > 0)):
        return rows
    return rows.take(np.argsort(offsets, kind="stable"))


def _batches(rows: pa.Table | None, include_headers: bool) -> Iterator[pa.RecordBatch]:
    if rows is None or not len(rows):
        return
    row_bytes = max(1, rows.nbytes // len(rows))
    size = max(1, min(_ROWS_MAX, _BATCH_BYTES_MAX // row_bytes))
    for batch in rows.combine_chunks().to_batches(max_chunksize=size):
        yield batch.cast(arrow_schema(include_headers))
