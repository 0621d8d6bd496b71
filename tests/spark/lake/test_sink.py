"""`format("tidelog-lake")`: any query into a table, each batch once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.lake.test_archive import forget_last_commit
from tidelog.spark.errors import OptionError
from tidelog.spark.lake.data_frame import read
from tidelog.spark.lake.opening import open_table
from tidelog.spark.lake.sink import LakeDataSource, parse_lake_options
from tidelog.spark.lake.sizes import parse_size, size_text
from tidelog.spark.lake.table import FORMATS

# The first query of a session takes its time where the machine is busy.
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_batch_that_runs_again_lands_once(
    spark: SparkSession, tmp_path: Path, format_name: str
) -> None:
    spark.dataSource.register(LakeDataSource)
    lake, checkpoint = tmp_path / "lake", tmp_path / "checkpoint"
    source = tmp_path / "in"
    source.mkdir()

    def run() -> None:
        rows = (
            spark.readStream.schema("name string, number long, at timestamp")
            .option("maxFilesPerTrigger", 1)
            .json(str(source))
        )
        query = (
            rows.writeStream.format("tidelog-lake")
            .option("format", format_name)
            .option("partitionBy", "name")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(lake))
        )
        assert query.awaitTermination(60)

    for number in range(2):
        (source / f"{number}.json").write_text(
            "".join(
                f'{{"name": "a/{each % 2}", "number": {each}, "at": "2026-11-05T13:00:00Z"}}\n'
                for each in range(number * 10, number * 10 + 10)
            )
        )
    run()
    forget_last_commit(checkpoint)
    run()
    assert sum(file.rows for file in open_table(lake).snapshot().files) == 20
    found = read(spark, lake).orderBy("number").collect()
    assert [row["number"] for row in found] == list(range(20))
    assert {row["name"] for row in found} == {"a/0", "a/1"}


def test_a_batch_write_lands_once_by_its_transaction(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(LakeDataSource)
    lake = tmp_path / "lake"

    def write(version: int) -> None:
        rows = spark.sql("SELECT 'b' AS name, 99L AS number, TIMESTAMP'2026-11-05' AS at")
        (
            rows.write.format("tidelog-lake")
            .option("partitionBy", "name")
            .option("txnAppId", "mine")
            .option("txnVersion", version)
            .mode("append")
            .save(str(lake))
        )

    for version in (0, 0, 1):
        write(version)
    assert sum(file.rows for file in open_table(lake).snapshot().files) == 2
    with pytest.raises(PySparkException, match="only appends"):
        spark.range(1).write.format("tidelog-lake").mode("overwrite").save(str(lake))


def test_options_are_checked_by_name() -> None:
    parsed = parse_lake_options({"path": "/x", "partitionby": "a, b", "TargetFileSize": "1 MB"})
    assert parsed.partition_columns == ("a", "b")
    assert parsed.target_file_bytes == 1 << 20
    for options, problem in [
        ({}, "path: "),
        ({"path": "/x", "partitonBy": "a"}, "did you mean partitionBy?"),
        ({"path": "/x", "txnAppId": "a"}, "go together"),
        ({"path": "/x", "txnAppId": "a", "txnVersion": "b"}, "txnVersion: 'b' is not a number"),
        ({"path": "/x", "targetFileSize": "big"}, "targetFileSize: 'big' is not a size"),
    ]:
        with pytest.raises(OptionError) as caught:
            parse_lake_options(options)
        assert problem in str(caught.value)


def test_sizes_are_read_and_written() -> None:
    assert parse_size("128MB", option="x") == 128 << 20
    assert parse_size(" 1.5 GiB ", option="x") == 3 << 29
    assert parse_size("10", option="x") == 10
    for text in ("0", "-1MB", "1XB", ""):
        with pytest.raises(OptionError, match="is not a size"):
            parse_size(text, option="x")
    assert size_text(12) == "12 B"
    assert size_text(3 << 29) == "1.5 GB"
    assert size_text(5 << 40) == "5.0 TB"
