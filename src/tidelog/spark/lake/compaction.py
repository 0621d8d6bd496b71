"""Small files of a lake made into large ones, without touching what the lake says.

Files are merged within one folder, and in an archive within one topic, in the order of their
offsets; a row group of the result holds records of one partition only, so that offsets still
prune. The commit takes the old files out and the new ones in at once. Old files stay on disk for
readers that are still at them, until they are vacuumed.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidelog.spark.lake.data_file import DataFile
from tidelog.spark.lake.open_files import OpenFiles
from tidelog.spark.lake.table import Change, Snapshot, Table, commit_with_retries
from tidelog.spark.lake.writing import (
    DEFAULT_TARGET_FILE_BYTES,
    ROW_GROUP_BYTES,
    FileWriter,
    Target,
)

# A file this close to the target is left alone: rewriting it would gain nothing.
_LARGE_ENOUGH = 0.75

# A file that is so many times larger than all that it would be merged with may wait for more.
_SPARED_TIMES = 2

_BINS_IN_FLIGHT_MAX = 4
_BINS_PER_COMMIT = 32


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction did; the sizes are of the files before and after."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def plus(self, other: "CompactionResult") -> "CompactionResult":
        return CompactionResult(
            self.files_before + other.files_before,
            self.files_after + other.files_after,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
        )


def plan_compaction(
    files: Sequence[DataFile],
    target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES,
    *,
    spares_large: bool = False,
) -> list[list[DataFile]]:
    """Which files to merge into one, in the order to merge them; a bin has at least two.

    Neighbours by partition and offset go together, so that the results interleave as little as
    the files did. With `spares_large` a file is only rewritten for others that are worth it: who
    merges again and again while files come in then rewrites each record a few times, and leaves a
    few files of growing sizes, where it would rewrite the largest every time.
    """
    groups: dict[tuple[str, str], list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size_bytes < _LARGE_ENOUGH * target_file_bytes:
            groups[file.folder, file.span.topic if file.span else ""].append(file)
    bins = []
    for _, group in sorted(groups.items()):
        chosen: list[DataFile] = []
        size_bytes = 0
        for file in sorted(group, key=_order):
            if chosen and size_bytes + file.size_bytes > target_file_bytes:
                bins.append(chosen)
                chosen, size_bytes = [], 0
            chosen.append(file)
            size_bytes += file.size_bytes
        bins.append(chosen)
    if spares_large:
        bins = [_without_spared(each) for each in bins]
    return [each for each in bins if len(each) > 1]


def _without_spared(files: list[DataFile]) -> list[DataFile]:
    kept = sorted(files, key=lambda each: each.size_bytes)
    size_bytes = sum(each.size_bytes for each in kept)
    while kept and kept[-1].size_bytes > _SPARED_TIMES * (size_bytes - kept[-1].size_bytes):
        size_bytes -= kept.pop().size_bytes
    return sorted(kept, key=_order)


def compact(
    table: Table,
    target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES,
    *,
    threads: int | None = None,
    spares_large: bool = False,
) -> CompactionResult:
    """Merge the small files of a table; `spares_large` as `plan_compaction` has it.

    Safe beside an archive that goes on and beside other compactions: a bin of which another has
    taken a file is given up.
    """
    # In an archive, a file without a span was left by another writer; only reading copes with it.
    files = [
        file
        for file in table.snapshot().files
        if file.span is not None or not table.layout.is_archive
    ]
    bins = plan_compaction(files, target_file_bytes, spares_large=spares_large)
    target = table.target(target_file_bytes)
    threads = threads or min(_BINS_IN_FLIGHT_MAX, os.cpu_count() or 1)
    done = CompactionResult()
    with ThreadPoolExecutor(threads) as pool:
        for at in range(0, len(bins), _BINS_PER_COMMIT):
            olds = bins[at : at + _BINS_PER_COMMIT]
            news = pool.map(lambda each: _merge(table, target, each), olds)
            done = done.plus(_replace(table, target, list(zip(olds, news, strict=True))))
    return done


def _order(file: DataFile) -> tuple[int, int, str]:
    span = file.span
    return (0, 0, file.path) if span is None else (span.partition_min, span.offset_min, file.path)


def _replace(
    table: Table, target: Target, merged: Sequence[tuple[Sequence[DataFile], DataFile]]
) -> CompactionResult:
    """Commit merged files in place of those they were made of, where these are still there."""
    kept: list[tuple[Sequence[DataFile], DataFile]] = []

    def decide(base: Snapshot) -> Change | None:
        present = {file.path for file in base.files}
        kept[:] = [each for each in merged if all(file.path in present for file in each[0])]
        if not kept:
            return None
        return Change(
            "compaction",
            adds=[new for _, new in kept],
            removes=[old for olds, _ in kept for old in olds],
        )

    commit_with_retries(table, decide)
    for _, new in merged:
        if all(new is not each for _, each in kept):
            target.place(new.path).unlink(missing_ok=True)
    return CompactionResult(
        files_before=sum(len(olds) for olds, _ in kept),
        files_after=len(kept),
        bytes_before=sum(old.size_bytes for olds, _ in kept for old in olds),
        bytes_after=sum(new.size_bytes for _, new in kept),
    )


def _merge(table: Table, target: Target, olds: Sequence[DataFile]) -> DataFile:
    """One file with the rows of several; memory is bounded by a row group or two."""
    columns = table.layout.partition_columns
    values = tuple(olds[0].partition_values[name] for name in columns)
    writer = FileWriter(target, values)
    try:
        waiting: list[pa.Table] = []
        waiting_bytes = 0
        last_partition: int | None = None
        with OpenFiles(table) as files:
            for partition, rows in _row_groups(table, files, olds):
                if waiting and (partition != last_partition or waiting_bytes >= ROW_GROUP_BYTES):
                    writer.write_row_group(pa.concat_tables(waiting))
                    waiting, waiting_bytes = [], 0
                waiting.append(rows)
                waiting_bytes += rows.nbytes
                last_partition = partition
        if waiting:
            writer.write_row_group(pa.concat_tables(waiting))
        return writer.close()
    except BaseException:
        writer.discard()
        raise


def _row_groups(
    table: Table, files: OpenFiles, olds: Sequence[DataFile]
) -> Iterator[tuple[int | None, pa.Table]]:
    """The row groups of some files with their partition, by partition and first offset."""
    schema = table.layout.file_schema
    found: list[tuple[tuple[int, int, int, int], int | None, DataFile, int]] = []
    for number, file in enumerate(olds):
        metadata = files.metadata(file)
        for index in range(metadata.num_row_groups):
            partition, offset = _first(metadata, index, file)
            place_in_order = (partition or 0, offset, number, index)
            found.append((place_in_order, partition, file, index))
    for _, partition, file, index in sorted(found, key=lambda each: each[0]):
        yield partition, files.read_row_group(file, index).select(schema.names).cast(schema)


def _first(metadata: Any, index: int, file: DataFile) -> tuple[int | None, int]:
    """The lowest partition and offset of a row group; (None, 0) where there is no statistic."""
    lows = {}
    group = metadata.row_group(index)
    for at in range(metadata.num_columns):
        column = group.column(at)
        if column.path_in_schema in ("partition", "offset") and column.statistics is not None:
            lows[column.path_in_schema] = column.statistics.min
    if file.span is None:
        return None, 0
    return lows.get("partition", file.span.partition_min), lows.get("offset", file.span.offset_min)
