"""Batch queries on a real Spark."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.topics import create_topic, delete_records_before, publish
from tidelog.testing import Broker

Load = Callable[..., DataFrame]


@pytest.fixture
def load(spark: SparkSession, broker: Broker, topic: str) -> Load:
    """Reads a topic of three partitions with 100 records each, a second apart, from 1970 on."""
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, topic, 3)
    for partition in range(3):
        publish(
            bootstrap,
            topic,
            [f"{partition}-{at}" for at in range(100)],
            partition=partition,
            timestamp_ms=lambda at: 1000 * (at + 1),
        )

    def load(**options: Any) -> DataFrame:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
        return spark.read.format("tidelog").options(**given).load()

    return load


def scanned(rows: DataFrame) -> int:
    """How many rows came from the source, before Spark's own filters."""
    plan = rows._jdf.queryExecution().executedPlan()
    rows._jdf.queryExecution().toRdd().count()
    leaf = plan.collectLeaves().apply(0)
    count: int = leaf.metrics().apply("numOutputRows").value()
    return count


def test_filters_narrow_what_is_read(load: Load) -> None:
    cases = {
        "partition = 1 AND offset >= 90": 10,
        "partition IN (0, 2) AND offset BETWEEN 5 AND 8": 8,
        "topic = 'other'": 0,
        "timestamp >= timestamp'1970-01-01 00:01:30+00:00'": 33,
        "offset < 3 AND CAST(value AS STRING) LIKE '%2'": 9,
    }
    for condition, expected in cases.items():
        narrowed = load(filterPushdown="true").where(condition)
        assert scanned(narrowed) == expected, condition
        assert narrowed.count() == load().where(condition).count(), condition


def test_filters_are_exact_where_a_dataframe_is_used_twice(load: Load) -> None:
    rows = load()
    low, high = rows.where("offset < 10"), rows.where("offset >= 95")
    assert low.count() == 30
    assert rows.count() == 300
    assert low.union(high).count() == 45


def test_filters_work_where_push_down_is_off(spark: SparkSession, load: Load) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        rows = load(filterPushdown="true").where("partition = 1 AND offset >= 90")
        assert rows.count() == 10
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_positions_by_time(load: Load) -> None:
    rows = load(startingTimestamp="10500", endingTimestamp="20000")
    assert sorted({row["offset"] for row in rows.select("offset").collect()}) == list(range(10, 19))
    with pytest.raises(AnalysisException, match="has no record that new"):
        load(startingTimestamp="99999999").count()


def test_a_start_after_the_end_is_told(load: Load, topic: str) -> None:
    given = f'{{"{topic}": {{"0": 8, "1": 0, "2": 0}}}}'
    with pytest.raises(AnalysisException, match=f"{topic}-0 the start 8, after its end 3"):
        load(startingOffsets=given, endingTimestamp="4000").count()


def test_ranges_are_split_into_tasks(load: Load) -> None:
    tasks = load(minPartitions="6").selectExpr("spark_partition_id() AS task", "offset")
    assert len({row["task"] for row in tasks.collect()}) == 6
    assert load(maxRecordsPerPartition="40").rdd.getNumPartitions() == 9


def test_mistakes_are_told_by_name(load: Load, topic: str) -> None:
    with pytest.raises(AnalysisException, match="did you mean maxOffsetsPerTrigger"):
        load(maxOfsetsPerTrigger="5")
    with pytest.raises(AnalysisException, match=f"there is no {topic}-none at"):
        load(subscribe=topic + "-none").count()
    with pytest.raises(AnalysisException, match="cannot start at the latest"):
        load(startingOffsets="latest").count()


def test_the_columns_cannot_be_chosen(spark: SparkSession, load: Load, broker: Broker) -> None:
    reader = spark.read.format("tidelog").schema("value STRING")
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    with pytest.raises(AnalysisException, match="columns of its own"):
        reader.option("subscribe", "any").load().count()


def test_deleted_records_are_a_loss_if_they_are_asked_for(
    load: Load, broker: Broker, topic: str
) -> None:
    delete_records_before(broker.bootstrap_servers, topic, 0, 50)
    assert load().count() == 250
    given = f'{{"{topic}": {{"0": 10, "1": 0, "2": 0}}}}'
    with pytest.raises(AnalysisException, match="has offsets from 50 to 100, not the start 10"):
        load(startingOffsets=given).count()
    assert load(startingOffsets=given, failOnDataLoss="false").count() == 250
