"""Streaming queries on a real Spark: checkpoints, limits, changes under way, groups."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.topics import (
    add_partitions,
    committed,
    create_topic,
    delete_topic,
    eventually,
    publish,
)
from tidelog.testing import Broker

Load = Callable[..., DataFrame]


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def load(spark: SparkSession, bootstrap: str, topic: str) -> Load:
    def load(**options: Any) -> DataFrame:
        given = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **options,
        }
        return spark.readStream.format("tidelog").options(**given).load()

    return load


def start(rows: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    """Write the rows to `folder`, as text."""
    return (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**(trigger or {"processingTime": "0 seconds"}))
        .start(str(folder / "rows"))
    )


def values(spark: SparkSession, folder: Path) -> list[str]:
    rows = spark.read.parquet(str(folder / "rows"))
    return sorted(row[0] for row in rows.selectExpr("CAST(value AS STRING)").collect())


def describe_group(bootstrap: str, group: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tidelog", "group", "describe", group, "--json"]
    done = subprocess.run(
        [*command, "--bootstrap", bootstrap], capture_output=True, text=True, check=True
    )
    rows: list[dict[str, Any]] = json.loads(done.stdout)["partitions"]
    return rows


def test_a_stream_goes_on_where_it_ended_and_its_group_shows_it(
    spark: SparkSession, load: Load, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, topic, 2)
    publish(bootstrap, topic, [f"a{at}" for at in range(6)])
    publish(bootstrap, topic, [f"b{at}" for at in range(2)], partition=1)
    rows = load(maxOffsetsPerTrigger=4, groupId=topic)
    query = start(rows, tmp_path, availableNow=True)
    assert query.awaitTermination(90)
    assert [each["numInputRows"] for each in query.recentProgress] == [4, 4]
    assert values(spark, tmp_path) == ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1"]
    (checkpoint,) = (tmp_path / "checkpoint" / "offsets").glob("1")
    assert json.loads(checkpoint.read_text().splitlines()[-1]) == {topic: {"0": 6, "1": 2}}
    assert not list(tmp_path.rglob("*.crc"))
    publish(bootstrap, topic, ["late"] * 3)
    assert sorted((row["partition"], row["lag"]) for row in describe_group(bootstrap, topic)) == [
        (0, 3),
        (1, 0),
    ]
    assert start(rows, tmp_path, availableNow=True).awaitTermination(90)
    assert values(spark, tmp_path)[-3:] == ["late", "late", "late"]
    assert committed(bootstrap, topic) == {(topic, 0): 9, (topic, 1): 2}


def test_partitions_come_and_topics_go_while_a_stream_runs(
    spark: SparkSession, load: Load, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["first"])
    query = start(load(), tmp_path)
    try:
        eventually(lambda: (tmp_path / "checkpoint" / "commits" / "0").exists(), "a micro-batch")
        add_partitions(bootstrap, topic, 3)
        publish(bootstrap, topic, ["second"], partition=2)
        eventually(lambda: values(spark, tmp_path) == ["first", "second"], "the new partition")
        delete_topic(bootstrap, topic)
        with pytest.raises(StreamingQueryException, match=f"{topic}-0 is gone"):
            query.awaitTermination(60)
    finally:
        query.stop()


def sizes(query: StreamingQuery) -> list[int]:
    """The records of each micro-batch that had any."""
    return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]


def test_an_assigned_partition_is_read_when_enough_is_there_or_long_enough_waited_for(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, topic, 2)
    publish(bootstrap, topic, ["other"] * 5)
    publish(bootstrap, topic, ["first"], partition=1)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "assign": f'{{"{topic}": [1]}}',
        "startingOffsets": "earliest",
        "minOffsetsPerTrigger": "3",
    }
    rows = spark.readStream.format("tidelog").options(**options)
    query = start(rows.option("maxTriggerDelay", "1h").load(), tmp_path)
    try:
        eventually(lambda: sizes(query) == [1], "what was there at the start")
        publish(bootstrap, topic, ["second"], partition=1)
        time.sleep(1)
        publish(bootstrap, topic, ["third", "fourth"], partition=1)
        eventually(lambda: sum(sizes(query)) == 4, "all of them")
        assert sizes(query) == [1, 3]
    finally:
        query.stop()
    query = start(rows.option("maxTriggerDelay", "1s").load(), tmp_path)
    try:
        publish(bootstrap, topic, ["fifth"], partition=1)
        eventually(lambda: sizes(query) == [1], "the first of this query")
        publish(bootstrap, topic, ["sixth"], partition=1)
        eventually(lambda: sizes(query) == [1, 1], "one that waited for no others")
    finally:
        query.stop()
    assert values(spark, tmp_path) == ["fifth", "first", "fourth", "second", "sixth", "third"]


def test_a_group_is_up_to_date_while_the_trigger_pauses(
    load: Load, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["x"] * 5)
    query = start(load(groupId=topic), tmp_path, processingTime="1 hour")
    try:
        eventually(lambda: committed(bootstrap, topic) == {(topic, 0): 5}, "the group's offsets")
    finally:
        query.stop()


def test_values_become_columns(
    spark: SparkSession, bootstrap: str, load: Load, topic: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ['{"id": 7, "name": "ann"}', "no JSON"])
    rows = load(valueFormat="json", valueSchema="id INT, name STRING")
    assert "value" not in rows.columns
    assert start(rows, tmp_path, availableNow=True).awaitTermination(90)
    found = spark.read.parquet(str(tmp_path / "rows")).orderBy("offset").collect()
    assert [(row["id"], row["name"], row["_corrupt"]) for row in found] == [
        (7, "ann", None),
        (None, None, bytearray(b"no JSON")),
    ]
