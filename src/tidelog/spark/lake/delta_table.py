"""A lake's table whose log is a Delta log, written through `deltalake`: no jar, no JVM."""

import json
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from tidelog.spark.lake.data_file import DataFile, Span
from tidelog.spark.lake.errors import CommitConflict, LakeError
from tidelog.spark.lake.layout import Layout
from tidelog.spark.lake.table import Change, Format, Snapshot, check_written
from tidelog.spark.lake.writing import DEFAULT_TARGET_FILE_BYTES, Target

_IS_ARCHIVE = "tidelog.archive"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DeltaLakeTable:
    """One Delta table. Any Delta reader can read it; other writers may append and compact."""

    format: Format = "delta"

    def __init__(self, root: Path) -> None:
        self.root = root
        table = self._open()
        metadata = table.metadata()
        self.identity = str(metadata.id)
        self.layout = Layout(
            pa.schema(table.schema().to_arrow()),
            tuple(metadata.partition_columns),
            is_archive=metadata.configuration.get(_IS_ARCHIVE) == "true",
        )

    @classmethod
    def create(cls, root: Path, layout: Layout) -> "DeltaLakeTable":
        """Make the table; one that somebody else makes at the same time is opened."""
        DeltaTable.create(
            str(root),
            layout.schema,
            mode="ignore",
            partition_by=list(layout.partition_columns),
            configuration={_IS_ARCHIVE: "true"} if layout.is_archive else None,
            raise_if_key_not_exists=False,
        )
        return cls(root)

    def snapshot(self) -> Snapshot:
        table = self._open()
        actions = pa.table(table.get_add_actions(flatten=True))
        columns = self.layout.partition_columns
        files = tuple(_data_file(row, columns) for row in actions.to_pylist())
        # Each question goes through the whole log.
        return Snapshot(table.version(), files, cache(table.transaction_version))

    def commit(self, base: Snapshot, change: Change) -> None:
        check_written(self.target(), change)
        table = self._open(base.version)
        now_ms = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                file.path,
                file.size_bytes,
                dict(file.partition_values),
                now_ms,
                change.changes_data,
                _statistics(file),
            )
            for file in change.adds
        ]
        actions += [
            RemoveAction(
                file.path,
                change.changes_data,
                now_ms,
                size=file.size_bytes,
                partition_values=dict(file.partition_values),
            )
            for file in change.removes
        ]
        properties = CommitProperties(
            custom_metadata={"userMetadata": f"tidelog {change.operation}"},
            # The library's own retries would commit what was decided on an old version.
            max_commit_retries=0,
            app_transactions=[Transaction(*each) for each in change.transactions.items()],
        )
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                partition_by=list(self.layout.partition_columns),
                commit_properties=properties,
            )
        except CommitFailedError as error:
            if self.snapshot().version > base.version:
                raise CommitConflict(f"{self.root}: another writer was first") from error
            raise LakeError(f"{self.root}: the commit failed: {error}") from error

    def target(self, target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES) -> Target:
        return Target(self.root, False, self.layout, target_file_bytes)

    def place(self, file: DataFile) -> Path:
        return self.root / file.path

    def finish_moves(self) -> None:
        """Files of a Delta table are written where they stay."""

    def vacuum(self, grace_s: float) -> int:
        removed = self._open().vacuum(
            retention_hours=math.ceil(grace_s / 3600),
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
        )
        return len(removed)

    def _open(self, version: int | None = None) -> DeltaTable:
        try:
            return DeltaTable(str(self.root), version=version)
        except DeltaError as error:
            raise LakeError(f"{self.root} cannot be opened as a Delta table: {error}") from error


def _data_file(row: Mapping[str, Any], partition_columns: tuple[str, ...]) -> DataFile:
    values = {name: _partition_text(row.get(f"partition.{name}")) for name in partition_columns}
    return DataFile(
        unquote(row["path"]),
        row["size_bytes"],
        row.get("num_records") or 0,
        values,
        _span(row),
    )


def _partition_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return str(value)


def _span(row: Mapping[str, Any]) -> Span | None:
    """The span of an archive's file; None if another writer left no statistics."""

    def bound(side: str, column: str) -> Any:
        partition_value = row.get(f"partition.{column}")
        return row.get(f"{side}.{column}") if partition_value is None else partition_value

    topic = bound("min", "topic")
    partitions = bound("min", "partition"), bound("max", "partition")
    offsets = bound("min", "offset"), bound("max", "offset")
    if topic is None or topic != bound("max", "topic") or None in (*partitions, *offsets):
        return None
    # A file may hold times that no calendar has: then there is no statistic of them.
    low, high = bound("min", "timestamp"), bound("max", "timestamp")
    low_us = -(2**63) if low is None else (low - _EPOCH) // timedelta(microseconds=1)
    high_us = 2**63 - 1 if high is None else (high - _EPOCH) // timedelta(microseconds=1)
    return Span(topic, *partitions, *offsets, low_us, high_us)


def _statistics(file: DataFile) -> str:
    """The statistics that Delta readers skip files by; partition columns have none there."""
    made: dict[str, Any] = {"numRecords": file.rows}
    if file.span is not None:
        span = file.span
        lows = {
            "topic": span.topic,
            "partition": span.partition_min,
            "offset": span.offset_min,
            "timestamp": _iso(span.timestamp_min_us),
        }
        highs = {
            "topic": span.topic,
            "partition": span.partition_max,
            "offset": span.offset_max,
            "timestamp": _iso(span.timestamp_max_us),
        }
        measured = [
            name
            for name in lows
            if name not in file.partition_values and None not in (lows[name], highs[name])
        ]
        made["minValues"] = {name: lows[name] for name in measured}
        made["maxValues"] = {name: highs[name] for name in measured}
        made["nullCount"] = {name: 0 for name in measured if name != "timestamp"}
    return json.dumps(made)


def _iso(timestamp_us: int) -> str | None:
    try:
        moment = _EPOCH + timedelta(microseconds=timestamp_us)
    except OverflowError:
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
