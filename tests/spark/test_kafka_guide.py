"""The examples of Spark's guide to its Kafka source and sink, with another format.

They are written anew. What a user of that source has is moved over by the name of the format.
"""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.topics import create_topic, eventually, publish
from tidelog.testing import Broker


@pytest.fixture
def servers(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def topics(servers: str, topic: str) -> tuple[str, str]:
    """Two topics: the first with two partitions, the second with one."""
    first, second = f"{topic}.one", f"{topic}.two"
    create_topic(servers, first, 2)
    create_topic(servers, second, 1)
    publish(servers, first, [f"a{at}" for at in range(6)], key="k", headers=[("h", b"1")])
    publish(servers, first, [f"b{at}" for at in range(4)], partition=1)
    publish(servers, second, [f"c{at}" for at in range(3)])
    return first, second


def values(rows: DataFrame) -> list[str]:
    texts = rows.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()
    return sorted(row["value"] for row in texts)


def streamed(rows: DataFrame, name: str, folder: Path) -> DataFrame:
    """What a stream gives until it has read all that was there."""
    query = (
        rows.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(folder / name))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return rows.sparkSession.table(name)


def test_batch_from_the_earliest_to_the_latest(
    spark: SparkSession, servers: str, topics: tuple[str, str]
) -> None:
    rows = (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topics[0])
        .load()
    )
    assert rows.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    assert values(rows) == ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1", "b2", "b3"]


def test_batch_of_several_topics_with_offsets(
    spark: SparkSession, servers: str, topics: tuple[str, str]
) -> None:
    first, second = topics
    rows = (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", f"{first},{second}")
        .option("startingOffsets", f'{{"{first}":{{"0":3,"1":-2}},"{second}":{{"0":-2}}}}')
        .option("endingOffsets", f'{{"{first}":{{"0":5,"1":-1}},"{second}":{{"0":-1}}}}')
        .load()
    )
    assert values(rows) == ["a3", "a4", "b0", "b1", "b2", "b3", "c0", "c1", "c2"]


def test_batch_by_pattern(spark: SparkSession, servers: str, topics: tuple[str, str]) -> None:
    rows = (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribePattern", topics[0].replace(".one", r"\..*"))
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    assert len(values(rows)) == 13
    assert {row["topic"] for row in rows.select("topic").distinct().collect()} == set(topics)


def test_batch_of_assigned_partitions(
    spark: SparkSession, servers: str, topics: tuple[str, str]
) -> None:
    first, second = topics
    rows = (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("assign", f'{{"{first}":[1],"{second}":[0]}}')
        .load()
    )
    assert values(rows) == ["b0", "b1", "b2", "b3", "c0", "c1", "c2"]


def test_streams_of_one_topic_with_headers(
    spark: SparkSession, servers: str, topics: tuple[str, str], topic: str, tmp_path: Path
) -> None:
    rows = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topics[0])
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    texts = rows.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "headers")
    name = topic.replace("-", "_")
    found = {row["value"]: row for row in streamed(texts, name, tmp_path).collect()}
    assert len(found) == 10
    assert found["a0"]["key"] == "k"
    assert [(each["key"], bytes(each["value"])) for each in found["a0"]["headers"]] == [("h", b"1")]
    assert found["b0"]["key"] is found["b0"]["headers"] is None


def test_streams_by_list_and_by_pattern(
    spark: SparkSession, servers: str, topics: tuple[str, str], topic: str, tmp_path: Path
) -> None:
    name = topic.replace("-", "_")
    by_list = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .load()
    )
    assert len(values(streamed(by_list, name + "_list", tmp_path))) == 13
    by_pattern = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribePattern", topics[1].replace(".two", ".t.*"))
        .option("startingOffsets", "earliest")
        .load()
    )
    assert values(streamed(by_pattern, name + "_pattern", tmp_path)) == ["c0", "c1", "c2"]


def test_a_stream_from_the_latest_reads_what_comes(
    spark: SparkSession, servers: str, topics: tuple[str, str], topic: str, tmp_path: Path
) -> None:
    rows = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topics[0])
        .load()
    )
    name = topic.replace("-", "_")
    query = (
        rows.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        eventually(lambda: query.lastProgress is not None, "the first micro-batch")
        publish(servers, topics[0], ["new"])
        eventually(lambda: values(spark.table(name)) == ["new"], "the new record")
    finally:
        query.stop()


def test_writing_batches_and_streams_back(
    spark: SparkSession, servers: str, topics: tuple[str, str], topic: str, tmp_path: Path
) -> None:
    _, second = topics
    source = {"kafka.bootstrap.servers": servers, "subscribe": second}
    target = f"{topic}.copy"
    create_topic(servers, target, 1)
    batch = spark.read.format("tidelog").options(**source).load()
    (
        batch.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        .write.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .save()
    )
    stream = (
        spark.readStream.format("tidelog")
        .options(**source, startingOffsets="earliest")
        .load()
        .selectExpr(f"'{target}' AS topic", "CAST(key AS STRING)", "CAST(value AS STRING)")
    )
    query = (
        stream.writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)

    def copied() -> list[str]:
        rows = spark.read.format("tidelog").options(**{**source, "subscribe": target}).load()
        return values(rows)

    eventually(lambda: copied() == ["c0", "c0", "c1", "c1", "c2", "c2"], "both copies")
