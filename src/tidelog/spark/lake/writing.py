"""Arrow in, Parquet out: the files that one task adds to a lake.

Rows are gathered by folder and leave as row groups of some megabytes, so that their statistics let
a reader skip to an offset. What a task has written becomes part of the table only when its files
are committed; a task that dies leaves files that no log names, which vacuuming removes.
"""

import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.spark.lake.data_file import DataFile, Span
from tidelog.spark.lake.layout import Layout, Values

DEFAULT_TARGET_FILE_BYTES = 128 << 20

# A row group is what a reader takes at least: small enough to skip well, large enough to compress.
ROW_GROUP_BYTES = 16 << 20

# Rows that wait for their row group to fill, over all folders of one task.
_WAITING_BYTES_MAX = 128 << 20

# Level 1 compresses text as well as level 3 within some per cent, at a quarter less time.
_COMPRESSION = "zstd"
_COMPRESSION_LEVEL = 1

# A task whose rows belong to very many folders closes files early rather than hold them all open.
_OPEN_FILES_MAX = 64

_MEASURED = ("topic", "partition", "offset", "timestamp")
_REPEATING = ("topic", "timestampType", "headers.list.element.key")
_ASCENDING = ("offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Target:
    """Where the files of a table go; can be sent to a task.

    `folder` is where a file stands until its commit: the table's root if its place is final at
    once, or a staging folder, in which files stand side by side.
    """

    folder: Path
    is_staging: bool
    layout: Layout
    target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES

    def place(self, path: str) -> Path:
        """Where the file with a path in the table is written."""
        return self.folder / (path.rpartition("/")[2] if self.is_staging else path)


class FileWriter:
    """Writes one Parquet file; rows must come in the order they are to be read."""

    def __init__(self, target: Target, values: Values) -> None:
        layout = target.layout
        self._layout = layout
        self._values = dict(zip(layout.partition_columns, values, strict=True))
        folder = layout.folder(values)
        name = f"part-{uuid.uuid4().hex}.parquet"
        self._path = f"{folder}/{name}" if folder else name
        self.place = target.place(self._path)
        self.place.parent.mkdir(parents=True, exist_ok=True)
        self._stream = pa.OSFile(str(self.place), "wb")
        self._writer = pq.ParquetWriter(
            self._stream, layout.file_schema, **_encoding(layout, layout.file_schema)
        )
        self._rows = 0
        self._span: Span | None = None

    @property
    def size_bytes(self) -> int:
        """What is written so far; row groups that are not full yet do not count."""
        return int(self._stream.tell())

    def write_row_group(self, rows: pa.Table) -> None:
        """Write some rows as one row group; in an archive all are of one partition of a topic."""
        if not len(rows):
            return
        self._writer.write_table(rows, row_group_size=len(rows))
        self._rows += len(rows)
        if self._layout.is_archive:
            span = _span(rows, self._values)
            self._span = span if self._span is None else self._span.joined(span)

    def close(self) -> DataFile:
        """Finish the file and sync it: a commit that names it must find it after a power cut."""
        self._writer.close()
        self._stream.close()
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            size_bytes = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        return DataFile(self._path, size_bytes, self._rows, self._values, self._span)

    def discard(self) -> None:
        """Remove an unfinished file."""
        self._stream.close()
        self.place.unlink(missing_ok=True)


@dataclass(slots=True)
class _Waiting:
    """Rows of one folder that are not a row group yet, and the file they will go to."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    size_bytes: int = 0
    file: FileWriter | None = None


class TaskWriter:
    """Takes the rows of one task and gives the files that hold them."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._waiting: dict[Values, _Waiting] = {}
        self._waiting_bytes = 0
        self._open_files = 0
        self._done: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows; those of an archive must be of one partition and ascend by offset."""
        for values, rows in self._target.layout.split(batch):
            waiting = self._waiting.setdefault(values, _Waiting())
            waiting.batches.append(rows)
            waiting.size_bytes += rows.nbytes
            self._waiting_bytes += rows.nbytes
            if waiting.size_bytes >= ROW_GROUP_BYTES:
                self._flush(values, waiting)
        while self._waiting_bytes > _WAITING_BYTES_MAX:
            self._flush(*max(self._waiting.items(), key=lambda item: item[1].size_bytes))

    def close(self) -> list[DataFile]:
        """Write what waits and give all files, ready to be committed."""
        for values, waiting in list(self._waiting.items()):
            self._flush(values, waiting)
            self._finish(waiting)
        return self._done

    def discard(self) -> None:
        """Remove all files of a task that failed."""
        for waiting in self._waiting.values():
            if waiting.file is not None:
                waiting.file.discard()
        for file in self._done:
            self._target.place(file.path).unlink(missing_ok=True)

    def _flush(self, values: Values, waiting: _Waiting) -> None:
        if not waiting.batches:
            return
        if waiting.file is None:
            waiting.file = FileWriter(self._target, values)
            self._open_files += 1
        waiting.file.write_row_group(pa.Table.from_batches(waiting.batches))
        self._waiting_bytes -= waiting.size_bytes
        waiting.batches, waiting.size_bytes = [], 0
        is_full = waiting.file.size_bytes >= self._target.target_file_bytes
        if is_full or self._open_files > _OPEN_FILES_MAX:
            self._finish(waiting)

    def _finish(self, waiting: _Waiting) -> None:
        if waiting.file is not None:
            self._done.append(waiting.file.close())
            waiting.file = None
            self._open_files -= 1


def write_all(target: Target, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
    """Write all rows of a task; files are removed again if it fails."""
    writer = TaskWriter(target)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.discard()
        raise


def _encoding(layout: Layout, schema: pa.Schema) -> dict[str, object]:
    common: dict[str, object] = {
        "compression": _COMPRESSION,
        "compression_level": _COMPRESSION_LEVEL,
        "write_page_checksum": True,
    }
    if not layout.is_archive:
        return common
    # Keys and values are mostly unlike each other: a dictionary of them would cost and be dropped,
    # and their smallest and largest tell a reader nothing.
    return {
        **common,
        "use_dictionary": [each for each in _REPEATING if each.partition(".")[0] in schema.names],
        "column_encoding": {
            each: "DELTA_BINARY_PACKED" for each in _ASCENDING if each in schema.names
        },
        "write_statistics": [each for each in _MEASURED if each in schema.names],
        "sorting_columns": [
            pq.SortingColumn(schema.get_field_index(each))
            for each in ("topic", "partition", "offset")
            if each in schema.names
        ],
    }


def _span(rows: pa.Table, values: dict[str, str | None]) -> Span:
    first = rows.slice(0, 1)
    topic = values["topic"] if "topic" in values else first["topic"][0].as_py()
    partition = int(values["partition"] or 0) if "partition" in values else None
    if partition is None:
        low, high = _bounds(rows["partition"])
    else:
        low = high = partition
    assert topic is not None
    offset_min, offset_max = _bounds(rows["offset"])
    timestamp_min_us, timestamp_max_us = _bounds(rows["timestamp"].cast(pa.int64()))
    return Span(topic, low, high, offset_min, offset_max, timestamp_min_us, timestamp_max_us)


def _bounds(column: pa.ChunkedArray) -> tuple[int, int]:
    found = pc.min_max(column)
    return int(found["min"].as_py() or 0), int(found["max"].as_py() or 0)
