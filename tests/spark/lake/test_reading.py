"""Ranges read back from an archive: exactly their records, in order, and little else is read."""

from __future__ import annotations

import itertools
import os
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.lake.archived import DAY_US, START_US, archive, make, rows, write
from tidelog.spark.lake import writing
from tidelog.spark.lake.archive_commit import commit_archived
from tidelog.spark.lake.compaction import compact, plan_compaction
from tidelog.spark.lake.data_file import DataFile, Span
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.layout import Layout
from tidelog.spark.lake.opening import open_or_create
from tidelog.spark.lake.reading import LakeTable, TimeRange
from tidelog.spark.lake.table import FORMATS, Change, Table
from tidelog.spark.lake.writing import write_all
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.schema import arrow_schema

both_formats = pytest.mark.parametrize("format_name", FORMATS)

Records = dict[int, dict[int, dict[str, Any]]]
"""partition -> offset -> record"""


def _archive_at_random(table: Table, rng: random.Random, batches: int) -> Records:
    """Ranges with compacted gaps, empty ranges and times that jump between days."""
    records: Records = {0: {}, 1: {}, 2: {}}
    ends = {partition: rng.randint(0, 50) for partition in records}
    for _ in range(batches):
        partition = rng.choice(list(records))
        start = ends[partition]
        end = start + rng.randint(1, 120)
        held = [offset for offset in range(start, end) if rng.random() < 0.7]
        times = [START_US + rng.randint(0, 3) * DAY_US + rng.randint(0, DAY_US - 1) for _ in held]
        archive(table, "t", partition, start, end, offsets=held, timestamps_us=times)
        for record in rows("t", partition, held, times).to_pylist():
            records[partition][record["offset"]] = record
        ends[partition] = end
    return records


def _check(path: Path, records: Records, rng: random.Random) -> None:
    lake = LakeTable(path)
    coverage = lake.coverage("t")
    for partition, expected in records.items():
        first, end = coverage.get(partition, (0, 0))
        cuts = sorted(rng.randint(first, end) for _ in range(2))
        for start, stop in [(first, end), (cuts[0], cuts[1])]:
            read = list(lake.read_range(OffsetRange("t", partition, start, stop), True))
            assert all(batch.schema.equals(arrow_schema(True)) for batch in read)
            found = [record for batch in read for record in batch.to_pylist()]
            inside = sorted(offset for offset in expected if start <= offset < stop)
            assert found == [expected[offset] for offset in inside]


@both_formats
@pytest.mark.parametrize("seed", range(3))
def test_random_ranges_are_read_back_exactly_before_and_after_compaction(
    tmp_path: Path, format_name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    # Row groups of a few rows, so that one file has many.
    monkeypatch.setattr(writing, "ROW_GROUP_BYTES", rng.choice([1, 3000, 1 << 20]))
    partition_by = rng.choice([["date"], ["hour"], ["none"], ["topic-partition"]])
    table = make(tmp_path / "lake", format_name, partition_by)
    records = _archive_at_random(table, rng, 12)
    _check(tmp_path / "lake", records, rng)
    coverage = LakeTable(tmp_path / "lake").coverage("t")
    compact(table, rng.choice([10_000, 1 << 27]))
    _check(tmp_path / "lake", records, rng)
    assert LakeTable(tmp_path / "lake").coverage("t") == coverage


@both_formats
def test_headers_come_only_if_asked_for(tmp_path: Path, format_name: str) -> None:
    table = make(tmp_path / "lake", format_name)
    archive(table, "t", 0, 0, 10)
    (batch,) = LakeTable(tmp_path / "lake").read_range(OffsetRange("t", 0, 2, 4), False)
    assert batch.schema.equals(arrow_schema(False))
    assert batch["offset"].to_pylist() == [2, 3]


@both_formats
def test_a_range_that_is_not_covered_is_refused(tmp_path: Path, format_name: str) -> None:
    table = make(tmp_path / "lake", format_name)
    archive(table, "t", 0, 10, 20)
    lake = LakeTable(tmp_path / "lake")
    for start, end in [(5, 15), (15, 25), (30, 40)]:
        with pytest.raises(LakeError, match=f"from 10 to 20, not {start} to {end}"):
            lake.read_range(OffsetRange("t", 0, start, end), True)
    assert list(lake.read_range(OffsetRange("nowhere", 0, 0, 0), True)) == []


def test_offsets_prune_files_and_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ROW_GROUP_BYTES", 1)
    table = make(tmp_path / "lake", "parquet")
    for step in range(4):
        write_steps = [
            rows("t", 0, list(range(at, at + 10))) for at in range(step * 50, step * 50 + 50, 10)
        ]
        files = write_all(table.target(), write_steps)
        table.commit(
            table.snapshot(),
            Change(
                "archive",
                adds=files,
                transactions={
                    "tidelog/t/partitions": 1,
                    "tidelog/t/0/start": 0,
                    "tidelog/t/0/end": step * 50 + 50,
                },
            ),
        )
    lake = LakeTable(tmp_path / "lake")
    assert pq.ParquetFile(table.place(lake.snapshot.files[0])).metadata.num_row_groups == 5
    groups_read = []
    read_row_group = pq.ParquetFile.read_row_group

    def counted(file: Any, index: int, **arguments: Any) -> Any:
        groups_read.append(index)
        return read_row_group(file, index, **arguments)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    read = list(lake.read_range(OffsetRange("t", 0, 125, 135), True))
    assert [each for batch in read for each in batch["offset"].to_pylist()] == list(range(125, 135))
    assert groups_read == [2, 3]


@both_formats
def test_times_choose_records(tmp_path: Path, format_name: str) -> None:
    table = make(tmp_path / "lake", format_name)
    times = [START_US + at * DAY_US for at in (0, 2, 1, 2, 0)]
    archive(table, "t", 0, 0, 5, timestamps_us=times)
    chosen = TimeRange(START_US + DAY_US, START_US + 2 * DAY_US + 1)
    read = LakeTable(tmp_path / "lake").read_range(OffsetRange("t", 0, 0, 5), True, times=chosen)
    assert [each for batch in read for each in batch["offset"].to_pylist()] == [1, 2, 3]


def _file(folder: str, number: int, size: int, *, topic: str = "t", partition: int = 0) -> DataFile:
    span = Span(topic, partition, partition, number * 10, number * 10 + 9, 0, 0)
    return DataFile(f"{folder}/{topic}-{partition}-{number}.parquet", size, 10, {}, span)


def test_small_neighbours_are_packed_up_to_the_target() -> None:
    files = [_file("date=1", number, 30) for number in (3, 0, 2, 1)]
    files += [_file("date=1", 9, 80), _file("date=2", 4, 30)]
    files += [_file("date=1", number, 10, topic="u") for number in (0, 1)]
    bins = plan_compaction(files, 100)
    assert [[each.name for each in chosen] for chosen in bins] == [
        ["t-0-0.parquet", "t-0-1.parquet", "t-0-2.parquet"],
        ["u-0-0.parquet", "u-0-1.parquet"],
    ]
    assert plan_compaction(files[4:6], 100) == []


def test_no_bin_exceeds_the_target_and_no_file_is_in_two() -> None:
    rng = random.Random(7)
    files = [
        _file(f"date={rng.randint(0, 2)}", number, rng.randint(1, 120), partition=rng.randint(0, 3))
        for number in range(200)
    ]
    bins = plan_compaction(files, 100)
    chosen = [each for one in bins for each in one]
    assert len(set(map(id, chosen))) == len(chosen)
    for one in bins:
        assert sum(each.size_bytes for each in one) <= 100
        assert len({each.folder for each in one}) == 1


def test_merging_again_and_again_rewrites_no_record_often() -> None:
    """A slow topic: ten small files between two compactions, and a thousand to fill one."""
    files: dict[str, DataFile] = {}
    rewritten_bytes, small_most = 0, 0
    for number in range(5000):
        added = _file("date=1", number, 1)
        files[added.path] = added
        if number % 10 != 9:
            continue
        for chosen in plan_compaction(list(files.values()), 1000, spares_large=True):
            size_bytes = sum(each.size_bytes for each in chosen)
            rewritten_bytes += size_bytes
            for each in chosen:
                del files[each.path]
            # They come in the order of their offsets.
            files[chosen[0].path] = replace(chosen[0], size_bytes=size_bytes)
        small_most = max(small_most, sum(each.size_bytes < 750 for each in files.values()))
    assert sum(each.size_bytes for each in files.values()) == 5000
    # 37 times if the largest was rewritten at each.
    assert rewritten_bytes / 5000 < 7
    assert small_most <= 6


@both_formats
def test_compaction_leaves_one_file_a_folder_with_row_groups_of_one_partition(
    tmp_path: Path, format_name: str
) -> None:
    table = make(tmp_path / "lake", format_name)
    for step in range(5):
        for partition in (1, 0):
            archive(table, "t", partition, step * 10, step * 10 + 10)
    result = compact(table)
    assert (result.files_before, result.files_after) == (10, 1)
    (file,) = table.snapshot().files
    assert file.span is not None
    assert (file.span.partition_min, file.span.partition_max) == (0, 1)
    assert (file.span.offset_min, file.span.offset_max, file.rows) == (0, 49, 100)
    metadata = pq.ParquetFile(table.place(file)).metadata
    assert metadata.num_row_groups == 2
    assert compact(table).files_before == 0
    # The old files wait for readers that are still at them.
    assert table.vacuum(3600) == 0
    assert table.vacuum(0) == 10
    assert sum(len(each) for each in _all(tmp_path / "lake")) == 50


@both_formats
def test_a_compaction_gives_way_to_another(tmp_path: Path, format_name: str) -> None:
    table = make(tmp_path / "lake", format_name)
    for step in range(4):
        archive(table, "t", 0, step * 10, step * 10 + 10)
    late = make(tmp_path / "lake", format_name)
    stale = late.snapshot()
    assert compact(table).files_after == 1
    assert compact(_Stale(late, stale)).files_after == 0
    assert sum(len(each) for each in _all(tmp_path / "lake")) == 40


class _Stale:
    """A table that is planned on as it was, and committed to as it is."""

    def __init__(self, table: Table, planned: Any) -> None:
        self._table = table
        self._planned = [planned]
        self.format, self.root, self.layout = table.format, table.root, table.layout
        self.target, self.place, self.commit = table.target, table.place, table.commit
        self.identity = table.identity
        self.vacuum, self.finish_moves = table.vacuum, table.finish_moves

    def snapshot(self) -> Any:
        return self._planned.pop() if self._planned else self._table.snapshot()


@both_formats
def test_a_table_that_is_no_archive_is_compacted_too(tmp_path: Path, format_name: str) -> None:
    schema = pa.schema([("name", pa.string()), ("count", pa.int64())])
    table = open_or_create(tmp_path / "lake", format_name, Layout(schema, ("name",), False))
    for step in range(3):
        batch = pa.record_batch([["a/b =ü", None, "a/b =ü"], [step, 1, 2]], schema=schema)
        table.commit(table.snapshot(), Change("write", adds=write_all(table.target(), [batch])))
    assert compact(table).files_after == 2
    files = sorted(table.snapshot().files, key=lambda each: each.path)
    assert [each.folder for each in files] == [
        "name=__HIVE_DEFAULT_PARTITION__",
        "name=a%2Fb %3Dü",
    ]
    assert [each.partition_values for each in files] == [{"name": None}, {"name": "a/b =ü"}]
    assert [pq.read_table(table.place(each)).num_rows for each in files] == [3, 6]
    with pytest.raises(LakeError, match="no archive"):
        LakeTable(tmp_path / "lake")


@contextmanager
def _few_files_may_be_open(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(each) for each in os.listdir("/proc/self/fd")}
    free = (each for each in itertools.count() if each not in used)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (next(itertools.islice(free, count, None)), before[1])
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_more_files_than_may_be_open_are_merged_and_read(tmp_path: Path) -> None:
    small = make(tmp_path / "small", "parquet")
    ranges = [OffsetRange("t", 0, at, at + 1) for at in range(150)]
    commit_archived(small, [write(small, each, [rows("t", 0, [each.start])]) for each in ranges])
    # Each day has a file, and each file reaches over nearly all offsets.
    spread = make(tmp_path / "spread", "parquet")
    times = [START_US + at % 150 * DAY_US for at in range(300)]
    archive(spread, "t", 0, 0, 300, timestamps_us=times)
    assert len(spread.snapshot().files) == 150
    with _few_files_may_be_open(100):
        assert compact(small, threads=1).files_before == 150
        for name, end in (("small", 150), ("spread", 300)):
            batches = LakeTable(tmp_path / name).read_range(OffsetRange("t", 0, 0, end))
            found = [at for each in batches for at in each.column("offset").to_pylist()]
            assert found == list(range(end))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    table = make(tmp_path / "lake", "parquet")
    archive(table, "t", 0, 0, 10)
    (file,) = table.snapshot().files
    table.place(file).write_bytes(b"PAR1 not quite")
    with pytest.raises(LakeError, match=file.name):
        _all(tmp_path / "lake")


def _all(path: Path) -> list[pa.RecordBatch]:
    lake = LakeTable(path)
    start, end = lake.coverage("t")[0]
    return list(lake.read_range(OffsetRange("t", 0, start, end), True))
