"""Archives made by Spark: every record once, whatever runs again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.lake import mixed_records
from tests.spark.lake.archived import make
from tests.spark.lake.mixed_records import Record
from tests.spark.topics import create_topic, delete_topic
from tidelog.spark.errors import OptionError
from tidelog.spark.lake.archiving import archive, bind_checkpoint
from tidelog.spark.lake.data_frame import read
from tidelog.spark.lake.errors import LakeError
from tidelog.spark.lake.opening import open_table
from tidelog.spark.lake.query_run import failure_text
from tidelog.spark.lake.reading import LakeTable
from tidelog.spark.lake.table import FORMATS, OWN_FOLDER
from tidelog.spark.offsets import OffsetRange
from tidelog.testing import Broker

# The first query of a session takes its time where the machine is busy.
pytestmark = pytest.mark.timeout(300)

PARTITIONS = 3


def _checkpoint(lake: Path) -> Path:
    (found,) = (lake / OWN_FOLDER / "checkpoints").iterdir()
    return found


def forget_last_commit(checkpoint: Path) -> None:
    """Make Spark run the last batch again: it was planned, and is not known to be done."""
    commits = [each for each in (checkpoint / "commits").iterdir() if each.name.isdigit()]
    max(commits, key=lambda each: int(each.name)).unlink()


def held(path: Path, topic: str) -> dict[int, list[Record]]:
    """All records of an archived topic, in the order of their offsets, as a consumer has them."""
    lake = LakeTable(path)
    found: dict[int, list[Record]] = {each: [] for each in range(PARTITIONS)}
    for partition, (start, end) in lake.coverage(topic).items():
        batches = lake.read_range(OffsetRange(topic, partition, start, end), True)
        rows: list[dict[str, Any]] = pa.Table.from_batches(
            batches, schema=None if start < end else pa.schema([])
        ).to_pylist()
        for row in rows:
            headers = row["headers"]
            found[partition].append(
                {
                    "offset": row["offset"],
                    "key": row["key"],
                    "value": row["value"],
                    "timestamp_ms": round(row["timestamp"].timestamp() * 1000),
                    "headers": None
                    if headers is None
                    else [(each["key"], each["value"]) for each in headers],
                }
            )
    return found


@pytest.mark.parametrize("format_name", FORMATS)
def test_what_is_in_the_topic_is_in_the_lake_once(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, format_name: str
) -> None:
    bootstrap = broker.bootstrap_servers
    lake = tmp_path / "lake"
    create_topic(bootstrap, topic, PARTITIONS)
    mixed_records.produce(bootstrap, topic, PARTITIONS, 900, seed=1)

    def run() -> int:
        return archive(
            [topic],
            lake,
            bootstrap=bootstrap,
            spark=spark,
            format=format_name,
            offsets_per_batch=400,
            compact_every=2,
        ).records

    assert run() == 900
    assert held(lake, topic) == mixed_records.consume(bootstrap, topic, PARTITIONS)
    version = LakeTable(lake).snapshot.version

    # The batch that Spark runs again writes its files anew, and they are not added.
    forget_last_commit(_checkpoint(lake))
    assert run() == 0
    assert LakeTable(lake).snapshot.version == version

    # Without its checkpoint an archive goes on where the lake ends.
    mixed_records.produce(bootstrap, topic, PARTITIONS, 300, seed=2)
    shutil.rmtree(_checkpoint(lake))
    assert run() == 300
    everything = mixed_records.consume(bootstrap, topic, PARTITIONS)
    assert held(lake, topic) == everything
    assert LakeTable(lake).coverage(topic) == mixed_records.ends(bootstrap, topic, PARTITIONS)

    # Spark reads the table as it is, without a jar.
    rows = read(spark, lake)
    assert {"key", "headers", "date"} <= set(rows.columns)
    counted = {
        row["partition"]: row["count"] for row in rows.groupBy("partition").count().collect()
    }
    assert counted == {each: len(records) for each, records in everything.items()}


def test_topics_are_archived_together_and_alone(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    lake = tmp_path / "lake"
    first, second = f"{topic}-x", f"{topic}-y"
    for each in (first, second):
        create_topic(bootstrap, each, PARTITIONS)

    def run(*topics: str) -> int:
        return archive(topics, lake, bootstrap=bootstrap, spark=spark, format="parquet").records

    # Each set of topics has a checkpoint of its own, which knows nothing of the others.
    for seed, (topics, records) in enumerate(
        [((first,), 30), ((first, second), 90), ((first,), 30), ((second, first), 90)]
    ):
        for each in (first, second):
            mixed_records.produce(bootstrap, each, PARTITIONS, 30, seed=seed)
        assert run(*topics) == records
    for each in (first, second):
        assert held(lake, each) == mixed_records.consume(bootstrap, each, PARTITIONS)
        assert LakeTable(lake).holes(each) == {}


def test_a_topic_that_was_made_anew_is_not_put_beside_the_old_one(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    lake = tmp_path / "lake"
    create_topic(bootstrap, topic, PARTITIONS)
    mixed_records.produce(bootstrap, topic, PARTITIONS, 50, seed=3)

    def run(**settings: Any) -> int:
        return archive([topic], lake, bootstrap=bootstrap, spark=spark, **settings).records

    assert run() == 50
    there = held(lake, topic)
    delete_topic(bootstrap, topic)
    create_topic(bootstrap, topic, PARTITIONS)
    for seed in (4, 5):
        for settings in ({}, {"fail_on_data_loss": False}):
            with pytest.raises(LakeError, match=f"topic {topic} .*made anew.*another folder"):
                run(**settings)
        # Fewer records than before, and then more.
        mixed_records.produce(bootstrap, topic, PARTITIONS, 200, seed=seed)
    assert held(lake, topic) == there


def test_mistakes_are_told_before_anything_is_started(broker: Broker, tmp_path: Path) -> None:
    bootstrap = broker.bootstrap_servers
    with pytest.raises(OptionError, match="there is no nowhere"):
        archive(["nowhere"], tmp_path / "lake", bootstrap=bootstrap)
    with pytest.raises(OptionError, match="'xml' is not one of delta, parquet"):
        archive(["nowhere"], tmp_path / "lake", bootstrap=bootstrap, format="xml")
    with pytest.raises(OptionError, match="no topic"):
        archive([], tmp_path / "lake", bootstrap=bootstrap)
    with pytest.raises(OptionError, match="maxOffsetsPerTrigger"):
        archive(["nowhere"], tmp_path / "lake", bootstrap=bootstrap, offsets_per_batch=0)


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_checkpoint_of_another_lake_is_refused(tmp_path: Path, format_name: str) -> None:
    checkpoint = tmp_path / "checkpoint"
    table = make(tmp_path / "lake", format_name)
    bind_checkpoint(checkpoint, table)
    bind_checkpoint(checkpoint, table)
    shutil.move(tmp_path / "lake", tmp_path / "moved")
    bind_checkpoint(checkpoint, make(tmp_path / "moved", format_name))
    with pytest.raises(OptionError, match="is not of the lake at"):
        bind_checkpoint(checkpoint, make(tmp_path / "lake", format_name))
    (tmp_path / "foreign" / "offsets").mkdir(parents=True)
    with pytest.raises(OptionError, match="is not of the lake at"):
        bind_checkpoint(tmp_path / "foreign", table)
    # One within the lake is always its own.
    bind_checkpoint(tmp_path / "moved" / "_tidelog" / "x", open_table(tmp_path / "moved"))


def test_the_reason_of_a_failure_is_one_line() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback:
  File "/x.py", line 5, in read
    raise LakeError("what")
tidelog.spark.lake.errors.LakeError: the lake holds t-0 up to offset 20
 SQLSTATE: XXKST"""
    assert failure_text(Exception(text)) == "the lake holds t-0 up to offset 20"
    assert failure_text(Exception("Traceback:\nOSError: [Errno 28] No space\n at x")) == (
        "[Errno 28] No space"
    )
    assert failure_text(Exception("Something else\n at x")) == "Something else"
    assert failure_text(ValueError()) == "ValueError"
