"""Both table formats: commits, conflicts, crashes between the decision and the moves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from tests.spark.lake.archived import DAY_US, START_US, archive, make, rows, write
from tidelog.spark.errors import OptionError
from tidelog.spark.lake import parquet_table
from tidelog.spark.lake.archive_commit import commit_archived
from tidelog.spark.lake.compaction import compact
from tidelog.spark.lake.data_file import DataFile
from tidelog.spark.lake.description import describe
from tidelog.spark.lake.errors import CommitConflict, LakeError
from tidelog.spark.lake.layout import archive_layout
from tidelog.spark.lake.opening import local_path, open_or_create, open_table
from tidelog.spark.lake.parquet_table import ParquetTable
from tidelog.spark.lake.reading import LakeTable, TimeRange
from tidelog.spark.lake.record_counts import RecordCount
from tidelog.spark.lake.table import FORMATS, Change
from tidelog.spark.offsets import OffsetRange

both_formats = pytest.mark.parametrize("format_name", FORMATS)


@both_formats
def test_files_and_coverage_come_in_one_commit(tmp_path: Path, format_name: str) -> None:
    table = make(tmp_path / "lake", format_name)
    batch = [
        write(table, OffsetRange("t", 0, 0, 10), [rows("t", 0, list(range(10)))]),
        write(table, OffsetRange("t", 1, 5, 9), [rows("t", 1, [5, 8])]),
        write(table, OffsetRange("u", 0, 3, 4), []),
    ]
    assert LakeTable(tmp_path / "lake").coverage("t") == {}
    assert commit_archived(table, batch)
    lake = LakeTable(tmp_path / "lake")
    assert lake.coverage("t") == {0: (0, 10), 1: (5, 9)}
    assert lake.coverage("u") == {0: (3, 4)}
    assert lake.topics() == ["t"]
    assert sum(file.rows for file in lake.snapshot.files) == 12


@both_formats
def test_a_batch_that_runs_again_lands_once(tmp_path: Path, format_name: str) -> None:
    table = make(tmp_path / "lake", format_name)
    assert archive(table, "t", 0, 0, 100)
    version = table.snapshot().version
    assert not archive(table, "t", 0, 0, 100)
    assert not archive(make(tmp_path / "lake", format_name), "t", 0, 0, 100)
    assert table.snapshot().version == version
    assert sum(file.rows for file in table.snapshot().files) == 100
    assert table.vacuum(3600) == 0
    assert table.vacuum(0) == 2
    assert sum(file.rows for file in table.snapshot().files) == 100
    assert sum(len(batch) for batch in _read(tmp_path / "lake", 0, 100)) == 100


@both_formats
def test_records_are_counted_as_they_are_archived(tmp_path: Path, format_name: str) -> None:
    table = make(tmp_path / "lake", format_name)
    archive(table, "t", 0, 5, 10, offsets=[6, 7])
    archive(table, "t", 0, 5, 10, offsets=[6, 7])
    archive(table, "t", 0, 10, 20)
    archive(table, "t", 1, 0, 3, offsets=[])
    compact(table)
    lake = LakeTable(tmp_path / "lake")
    assert lake.record_counts("t") == {0: RecordCount(5, 12), 1: RecordCount(0, 0)}
    # An archive that was begun before records were counted is counted from where it goes on.
    old = {f"tidelog/u/0/{name}": value for name, value in (("start", 0), ("end", 8))}
    table.commit(table.snapshot(), Change("x", transactions={**old, "tidelog/u/partitions": 1}))
    assert LakeTable(tmp_path / "lake").record_counts("u") == {}
    archive(table, "u", 0, 8, 12)
    assert LakeTable(tmp_path / "lake").record_counts("u") == {0: RecordCount(8, 4)}


@both_formats
def test_what_was_lost_before_it_was_archived_is_remembered(
    tmp_path: Path, format_name: str
) -> None:
    table = make(tmp_path / "lake", format_name)
    archive(table, "t", 0, 0, 10)
    lossy = write(table, OffsetRange("t", 0, 12, 20), [rows("t", 0, [12, 18, 19])])
    for _ in range(2):
        commit_archived(table, [replace(lossy, holes=((13, 18),))], gaps_allowed=True)
    archive(table, "t", 1, 7, 9)
    compact(table)
    lake = LakeTable(tmp_path / "lake")
    assert lake.coverage("t") == {0: (0, 20), 1: (7, 9)}
    assert lake.holes("t") == {0: [(10, 12), (13, 18)]}
    (topic,) = describe(tmp_path / "lake")["topics"]
    assert topic["partitions"][0]["holes"] == [
        {"start_offset": 10, "end_offset": 12},
        {"start_offset": 13, "end_offset": 18},
    ]


@both_formats
def test_files_that_were_vacuumed_before_their_commit_are_not_committed(
    tmp_path: Path, format_name: str
) -> None:
    table = make(tmp_path / "lake", format_name)
    archive(table, "t", 0, 0, 10)
    written = write(table, OffsetRange("t", 0, 10, 20), [rows("t", 0, list(range(10, 20)))])
    assert open_table(tmp_path / "lake").vacuum(0) == 1
    with pytest.raises(LakeError, match="gone before its commit"):
        commit_archived(table, [written])
    assert LakeTable(tmp_path / "lake").coverage("t") == {0: (0, 10)}
    # The batch that Spark runs again brings them.
    assert archive(table, "t", 0, 10, 20)
    assert sum(len(batch) for batch in _read(tmp_path / "lake", 0, 20)) == 20


@both_formats
def test_another_topic_of_the_name_is_refused(tmp_path: Path, format_name: str) -> None:
    old, new = b"\xff" * 8 + bytes(8), bytes(range(16))
    table = make(tmp_path / "lake", format_name)
    # Neither a lake without an id nor a broker that tells none is held to be another.
    archive(table, "t", 0, 0, 10)
    archive(table, "t", 0, 10, 20, topic_id=old)
    archive(table, "t", 0, 20, 30)
    assert LakeTable(tmp_path / "lake").topic_id("t") == old
    for start, end in ((0, 5), (30, 40)):
        with pytest.raises(LakeError, match=r"topic t .* was deleted and made anew.*another fol"):
            archive(table, "t", 0, start, end, topic_id=new)
    compact(table)
    if format_name == "delta":
        DeltaTable(str(tmp_path / "lake")).create_checkpoint()
    lake = LakeTable(tmp_path / "lake")
    assert (lake.topic_id("t"), lake.topic_id("u")) == (old, None)
    assert lake.coverage("t") == {0: (0, 30)}
    assert archive(table, "u", 0, 0, 5, topic_id=new)


@both_formats
def test_a_commit_on_an_old_version_is_refused(tmp_path: Path, format_name: str) -> None:
    first = make(tmp_path / "lake", format_name)
    second = make(tmp_path / "lake", format_name)
    old = second.snapshot()
    archive(first, "t", 0, 0, 10)
    with pytest.raises(CommitConflict):
        second.commit(old, Change("archive", transactions={"x": 1}))
    second.commit(second.snapshot(), Change("archive", transactions={"x": 1}))
    assert first.snapshot().transaction("x") == 1


@both_formats
def test_two_archives_of_different_topics_share_a_lake(tmp_path: Path, format_name: str) -> None:
    first = make(tmp_path / "lake", format_name)
    second = make(tmp_path / "lake", format_name)
    for step in range(4):
        archive(first, "a", 0, step * 5, step * 5 + 5)
        archive(second, "b", 0, step * 7, step * 7 + 7)
    lake = LakeTable(tmp_path / "lake")
    assert (lake.coverage("a"), lake.coverage("b")) == ({0: (0, 20)}, {0: (0, 28)})
    assert lake.topics() == ["a", "b"]


@both_formats
@pytest.mark.parametrize(
    ("partition_by", "folders"),
    [
        (["date"], {"date=2024-10-04", "date=2024-10-05"}),
        (["hour"], {"date=2024-10-04/hour=0", "date=2024-10-05/hour=1"}),
        (["topic-partition"], {"topic=t/partition=2"}),
        (
            ["topic-partition", "date"],
            {"topic=t/partition=2/date=2024-10-04", "topic=t/partition=2/date=2024-10-05"},
        ),
        (["none"], {""}),
    ],
)
def test_rows_are_in_their_folders_and_keep_all_columns(
    tmp_path: Path, format_name: str, partition_by: list[str], folders: set[str]
) -> None:
    table = make(tmp_path / "lake", format_name, partition_by)
    times = [START_US, START_US + DAY_US + 3_600_000_000, START_US + 1, START_US + 2]
    archive(table, "t", 2, 10, 14, timestamps_us=times)
    assert {file.folder for file in table.snapshot().files} == folders
    wanted = OffsetRange("t", 2, 10, 14)
    read = pa.Table.from_batches(LakeTable(tmp_path / "lake").read_range(wanted, True))
    assert read.to_pylist() == rows("t", 2, [10, 11, 12, 13], times).to_pylist()
    everything = _plain(tmp_path / "lake", format_name)
    assert set(everything.column_names) >= set(read.column_names)
    assert sorted(everything["offset"].to_pylist()) == [10, 11, 12, 13]


@both_formats
def test_a_record_without_a_time_or_with_an_odd_one_is_kept(
    tmp_path: Path, format_name: str
) -> None:
    table = make(tmp_path / "lake", format_name)
    odd = [2**63 - 1, -(2**63), 253_402_300_800_000_000, -62_135_596_800_000_001]
    last, first = 253_402_300_799_999_999, -62_135_596_800_000_000
    batch = rows("t", 0, list(range(7)), [0, *odd, last, first])
    times = pa.array([None, *odd, last, first], batch.schema.field("timestamp").type)
    batch = batch.set_column(5, batch.schema.field("timestamp"), times)
    commit_archived(table, [write(table, OffsetRange("t", 0, 0, 7), [batch])])
    assert {file.folder for file in table.snapshot().files} == {
        "date=__HIVE_DEFAULT_PARTITION__",
        "date=9999-12-31",
        "date=0001-01-01",
    }
    read = pa.Table.from_batches(_read(tmp_path / "lake", 0, 7)).combine_chunks()
    assert read["timestamp"].chunk(0).equals(times)
    assert compact(table).files_before == 0
    within = TimeRange(first, 0)
    lake = LakeTable(tmp_path / "lake")
    (chosen,) = lake.read_range(OffsetRange("t", 0, 0, 7), True, times=within)
    assert chosen.column("offset").to_pylist() == [6]


def test_a_parquet_commit_whose_moves_were_cut_off_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "lake", "parquet")
    archive(table, "t", 0, 0, 10)
    moves = _die_after(monkeypatch, moves=1)
    written = [
        write(table, OffsetRange("t", 0, 10, 20), [rows("t", 0, list(range(10, 20)))]),
        write(table, OffsetRange("t", 1, 0, 5), [rows("t", 1, list(range(5)))]),
    ]
    with pytest.raises(_Died):
        commit_archived(table, written)
    assert moves()
    monkeypatch.undo()
    # Decided is decided: readers find the files where they stand.
    assert sum(len(batch) for batch in _read(tmp_path / "lake", 0, 20)) == 20
    assert LakeTable(tmp_path / "lake").coverage("t") == {0: (0, 20), 1: (0, 5)}
    assert len(_plain(tmp_path / "lake", "parquet")) < 25
    again = open_table(tmp_path / "lake")
    assert not commit_archived(again, written)
    assert len(_plain(tmp_path / "lake", "parquet")) == 25
    assert again.vacuum(0) == 0


def test_a_parquet_batch_that_died_before_its_decision_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "lake", "parquet")
    archive(table, "t", 0, 0, 10)

    def die(source: Path, destination: Path) -> None:
        raise _Died

    monkeypatch.setattr(os, "link", die)
    with pytest.raises(_Died):
        archive(table, "t", 0, 10, 20)
    monkeypatch.undo()
    assert LakeTable(tmp_path / "lake").coverage("t") == {0: (0, 10)}
    assert len(_plain(tmp_path / "lake", "parquet")) == 10
    assert archive(open_table(tmp_path / "lake"), "t", 0, 10, 20)
    assert len(_plain(tmp_path / "lake", "parquet")) == 20
    assert open_table(tmp_path / "lake").vacuum(0) == 1


def test_a_parquet_log_is_read_from_its_checkpoint_and_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_table, "_CHECKPOINT_INTERVAL", 5)
    monkeypatch.setattr(parquet_table, "_LOG_FILES_KEPT", 3)
    table = ParquetTable.create(tmp_path / "lake", archive_layout(["date"]))
    behind = open_table(tmp_path / "lake")
    for step in range(23):
        archive(table, "t", 0, step, step + 1)
    log = tmp_path / "lake" / parquet_table.LOG_FOLDER
    assert len(list(log.iterdir())) < 14
    for each in (behind, open_table(tmp_path / "lake")):
        snapshot = each.snapshot()
        assert snapshot.version == 23
        assert len(snapshot.files) == 23
    assert LakeTable(tmp_path / "lake").coverage("t") == {0: (0, 23)}
    damaged = log / f"{23:020d}.json"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(LakeError, match=r"23\.json is damaged"):
        open_table(tmp_path / "lake").snapshot()


def test_a_delta_lake_outlives_checkpoints_and_other_writers(tmp_path: Path) -> None:
    table = make(tmp_path / "lake", "delta")
    for step in range(6):
        archive(table, "t", step % 2, step // 2 * 10, step // 2 * 10 + 10)
    foreign = DeltaTable(str(tmp_path / "lake"))
    foreign.create_checkpoint()
    foreign.optimize.compact()
    lake = LakeTable(tmp_path / "lake")
    assert len(lake.snapshot.files) == 1
    assert lake.coverage("t") == {0: (0, 30), 1: (0, 30)}
    for partition in (0, 1):
        read = lake.read_range(OffsetRange("t", partition, 5, 25), True)
        found = pa.Table.from_batches(read)
        assert found.to_pylist() == rows("t", partition, list(range(5, 25))).to_pylist()
    assert DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().num_rows == 60


@pytest.mark.parametrize(
    ("format_name", "unfinished"),
    [
        ("delta", f"_delta_log/_commit_{'a' * 8}.json.tmp"),
        ("parquet", f"{parquet_table.LOG_FOLDER}/.{0:020d}.checkpoint.json.{'a' * 8}"),
    ],
)
def test_a_table_whose_making_was_cut_off_is_made(
    tmp_path: Path, format_name: str, unfinished: str
) -> None:
    lake = tmp_path / "lake"
    for is_begun in (False, True):
        (lake / unfinished).parent.mkdir(parents=True)
        if is_begun:
            (lake / unfinished).write_text("{")
        with pytest.raises(LakeError, match="there is no lake at"):
            open_table(lake)
        archive(make(lake, format_name), "t", 0, 0, 10)
        assert LakeTable(lake).coverage("t") == {0: (0, 10)}
        shutil.rmtree(lake)


def test_what_is_asked_must_fit_what_is_there(tmp_path: Path) -> None:
    make(tmp_path / "lake", "parquet")
    with pytest.raises(OptionError, match=r"format: the lake at .* is parquet, not delta"):
        make(tmp_path / "lake", "delta")
    with pytest.raises(OptionError, match=r"partition-by: .* date, not date/hour"):
        make(tmp_path / "lake", "parquet", ["hour"])
    with pytest.raises(OptionError, match="'daily' is not one of date, hour"):
        make(tmp_path / "other", "parquet", ["daily"])
    with pytest.raises(OptionError, match="'orc' is not one of delta, parquet"):
        open_or_create(tmp_path / "other", "orc", archive_layout(["date"]))
    with pytest.raises(LakeError, match="there is no lake at"):
        open_table(tmp_path / "other")
    with pytest.raises(OptionError, match="s3 is not supported"):
        local_path("s3://bucket/lake")
    assert local_path("file:///a%20b") == Path("/a b")


class _Died(BaseException):
    """Stands for kill -9 at this very place."""


def _die_after(monkeypatch: pytest.MonkeyPatch, moves: int) -> Callable[[], int]:
    done = 0
    rename = os.rename

    def counted(source: Path, destination: Path) -> None:
        nonlocal done
        if done == moves:
            raise _Died
        done += 1
        rename(source, destination)

    monkeypatch.setattr(os, "rename", counted)
    return lambda: done


def _read(path: Path, start: int, end: int) -> list[pa.RecordBatch]:
    return list(LakeTable(path).read_range(OffsetRange("t", 0, start, end), True))


def _plain(path: Path, format_name: str) -> pa.Table:
    """The table as a reader sees it that knows nothing of us."""
    if format_name == "delta":
        return DeltaTable(str(path)).to_pyarrow_table()
    return ds.dataset(path, format="parquet", partitioning="hive").to_table()


def test_a_data_file_knows_its_folder() -> None:
    assert DataFile("a=1/b=2/x.parquet", 0, 0).folder == "a=1/b=2"
    assert DataFile("x.parquet", 0, 0).folder == ""
    assert DataFile("a=1/x.parquet", 0, 0).name == "x.parquet"
