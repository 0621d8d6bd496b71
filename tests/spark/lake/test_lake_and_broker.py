"""Lake and broker read as one, after the broker has deleted what the lake holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tests.spark.lake import mixed_records
from tests.spark.lake.mixed_records import Record
from tests.spark.topics import create_topic, delete_records_before
from tidelog.spark.errors import DataLossError, SparkError
from tidelog.spark.lake.archiving import archive
from tidelog.spark.lake.reading import LakeTable
from tidelog.spark.lake.replaying import ReplayResult, replay
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.source.options import parse_batch_options
from tidelog.spark.source.range_partition import RangePartition, RangeReader
from tidelog.testing import Broker

# The first query of a session takes its time where the machine is busy.
pytestmark = pytest.mark.timeout(300)

PARTITIONS = 2


def _by_partition(rows: list[Row]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {each: [] for each in range(PARTITIONS)}
    for row in rows:
        headers = row["headers"]
        found[row["partition"]].append(
            {
                "offset": row["offset"],
                "key": None if row["key"] is None else bytes(row["key"]),
                "value": None if row["value"] is None else bytes(row["value"]),
                "timestamp_ms": round(row["timestamp"].timestamp() * 1000),
                "headers": None
                if headers is None
                else [
                    (each["key"], None if each["value"] is None else bytes(each["value"]))
                    for each in headers
                ],
            }
        )
    return found


def test_archived_records_outlive_the_broker(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    lake = tmp_path / "lake"
    create_topic(bootstrap, topic, PARTITIONS)
    mixed_records.produce(bootstrap, topic, PARTITIONS, 300, seed=21)
    archive([topic], lake, bootstrap=bootstrap, spark=spark)
    mixed_records.produce(bootstrap, topic, PARTITIONS, 100, seed=22)
    everything = mixed_records.consume(bootstrap, topic, PARTITIONS)
    coverage = LakeTable(lake).coverage(topic)
    # One partition keeps some of what is archived, the other none.
    delete_records_before(bootstrap, topic, 0, coverage[0][1] - 10)
    delete_records_before(bootstrap, topic, 1, coverage[1][1])
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "includeHeaders": "true",
        "lake": str(lake),
    }

    rows = spark.read.format("tidelog").options(**options).load()
    assert _by_partition(rows.orderBy("partition", "offset").collect()) == everything

    streamed: list[Row] = []

    def keep(batch: DataFrame, _: int) -> None:
        streamed.extend(batch.collect())

    stream = spark.readStream.format("tidelog").options(
        startingOffsets="earliest", maxOffsetsPerTrigger="150", **options
    )
    query = (
        stream.load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    streamed.sort(key=lambda row: (row["partition"], row["offset"]))
    assert _by_partition(streamed) == everything


def test_an_archive_says_what_the_broker_lost(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, topic, PARTITIONS)
    mixed_records.produce(bootstrap, topic, PARTITIONS, 100, seed=23)

    def run(**settings: Any) -> int:
        return archive(
            [topic], tmp_path / "lake", bootstrap=bootstrap, spark=spark, **settings
        ).records

    assert run() == 100
    ends = mixed_records.ends(bootstrap, topic, PARTITIONS)
    mixed_records.produce(bootstrap, topic, PARTITIONS, 100, seed=24)
    delete_records_before(bootstrap, topic, 0, ends[0][1] + 5)
    with pytest.raises(SparkError, match=f"^(?!.*Traceback).*{topic}.*{ends[0][1]}"):
        run()
    assert run(fail_on_data_loss=False) == 95
    assert {
        each: end for each, (_, end) in LakeTable(tmp_path / "lake").coverage(topic).items()
    } == {each: end for each, (_, end) in mixed_records.ends(bootstrap, topic, PARTITIONS).items()}
    # The hole is remembered, and is a loss to whoever reads it.
    hole = (ends[0][1], ends[0][1] + 5)
    assert LakeTable(tmp_path / "lake").holes(topic) == {0: [hole]}
    strict, tolerant = (
        parse_batch_options(
            {
                "kafka.bootstrap.servers": bootstrap,
                "subscribe": topic,
                "lake": str(tmp_path / "lake"),
                "failOnDataLoss": fails,
            }
        )
        for fails in ("true", "false")
    )
    part = RangePartition(OffsetRange(topic, 0, 0, hole[1] + 1), (0, hole[1] + 1))
    with pytest.raises(DataLossError, match=f"offsets {hole[0]} to {hole[1]} were lost before"):
        list(RangeReader(strict, False, None).read(part))
    read = sum(map(len, RangeReader(tolerant, False, None).read(part)))
    assert read == hole[0] + 1
    outside = RangePartition(OffsetRange(topic, 0, 0, hole[0]), (0, hole[1]))
    assert sum(map(len, RangeReader(strict, False, None).read(outside))) == hole[0]

    def bring_back(**settings: Any) -> ReplayResult:
        return replay(
            tmp_path / "lake",
            topic=topic,
            to_topic=f"{topic}-copy",
            bootstrap=bootstrap,
            replay_id="back",
            spark=spark,
            **settings,
        )

    create_topic(bootstrap, f"{topic}-copy", PARTITIONS)
    with pytest.raises(DataLossError, match=f"offsets {hole[0]} to {hole[1]} .*allow-data-loss"):
        bring_back()
    result = bring_back(fail_on_data_loss=False)
    assert (result.records, len(result.losses)) == (195, 1)
