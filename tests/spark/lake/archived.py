"""Archives made without Spark, for tests of what is below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidelog.spark.lake.archive_commit import WrittenRange, commit_archived
from tidelog.spark.lake.layout import archive_layout
from tidelog.spark.lake.opening import open_or_create
from tidelog.spark.lake.table import Table
from tidelog.spark.lake.writing import write_all
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.schema import arrow_schema

DAY_US = 86_400_000_000
START_US = 20_000 * DAY_US


def rows(
    topic: str, partition: int, offsets: Sequence[int], timestamps_us: Sequence[int] | None = None
) -> pa.RecordBatch:
    """Records whose key, value and headers tell their place."""
    count = len(offsets)
    times = [START_US + each for each in offsets] if timestamps_us is None else timestamps_us
    columns = [
        pa.array([None if at % 7 == 0 else b"k%d" % at for at in offsets], pa.binary()),
        pa.array([None if at % 5 == 0 else b"%d-%d" % (partition, at) for at in offsets]),
        pa.array([topic] * count),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(offsets, pa.int64()),
        pa.array(times, pa.timestamp("us", "UTC")),
        pa.array(np.zeros(count, np.int32)),
        pa.array(
            [None if at % 3 else [{"key": "h", "value": b"%d" % at}] for at in offsets],
            arrow_schema(True).field("headers").type,
        ),
    ]
    return pa.record_batch(columns, schema=arrow_schema(True))


def make(path: Path, format_name: str, partition_by: Sequence[str] = ("date",)) -> Table:
    return open_or_create(path, format_name, archive_layout(partition_by))


def write(table: Table, wanted: OffsetRange, batches: Iterable[pa.RecordBatch]) -> WrittenRange:
    return WrittenRange(wanted, tuple(write_all(table.target(), batches)))


def archive(
    table: Table,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    offsets: Sequence[int] | None = None,
    timestamps_us: Sequence[int] | None = None,
    topic_id: bytes | None = None,
) -> bool:
    """Archive one range; by default every offset of it is a record."""
    held = range(start, end) if offsets is None else offsets
    batch = rows(topic, partition, list(held), timestamps_us)
    written = write(table, OffsetRange(topic, partition, start, end), [batch])
    return commit_archived(table, [replace(written, topic_id=topic_id)])
