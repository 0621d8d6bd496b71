"""What the driver learns from an archive, and how broker and archive become one."""

import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from tests.spark.lake.archived import START_US, archive, make
from tests.spark.topics import create_topic, delete_records_before, delete_topic, publish
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.data_source import TidelogDataSource
from tidelog.spark.errors import DataLossError, OptionError
from tidelog.spark.offsets import AtTimestamp, Everywhere, OffsetRange
from tidelog.spark.schema import spark_schema
from tidelog.spark.source.lake_lookup import LakeLookup
from tidelog.spark.source.options import SourceOptions, parse_source_options
from tidelog.spark.source.positions import Asked, find_positions
from tidelog.spark.source.range_partition import RangeReader, to_partitions
from tidelog.spark.source.subscribed_topics import SubscribedTopics
from tidelog.testing import Broker

START_MS = START_US // 1000


def make_lake(path: Path, topic: str) -> LakeLookup:
    """Offsets 0 to 10 of one partition; the record at 4 is a second newer than the others."""
    times = [START_US + (1_000_000 if at == 4 else 0) for at in range(10)]
    archive(make(path, "delta"), topic, 0, 0, 10, timestamps_us=times)
    return LakeLookup(str(path))


def test_no_lake_covers_nothing() -> None:
    name = TopicPartition("orders", 0)
    assert LakeLookup(None).coverage([name]) == {}
    assert LakeLookup(None).first_not_older({name: 0}) == {}


def test_coverage_and_times_of_a_lake(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, "orders")
    held, other = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert lake.coverage([held, other]) == {held: (0, 10)}
    assert lake.first_not_older({held: START_MS + 1, other: 0}) == {held: 4}
    assert lake.first_not_older({held: START_MS + 2000}) == {}


def test_what_the_broker_deleted_is_read_from_the_lake(
    tidelog_broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 1, retention_ms="-1")
    publish(bootstrap, topic, ["x"] * 20, timestamp_ms=lambda at: START_MS + 5000)
    delete_records_before(bootstrap, topic, 0, 8)
    lake = make_lake(tmp_path, topic)
    options = parse_source_options(
        {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "lake": str(tmp_path)}
    )
    name = TopicPartition(topic, 0)
    extent, (first, by_time) = find_positions(
        SubscribedTopics(options),
        lake,
        {name},
        Asked("starting", Everywhere(-2), False),
        Asked("starting", AtTimestamp(START_MS + 1), False),
    )
    assert extent.earliest == first == {name: 0}
    assert extent.latest == {name: 20}
    assert by_time == {name: 4}


def test_the_tasks_of_a_range_stay_the_same_while_the_lake_grows(
    tidelog_broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["x"] * 20)
    table = make(tmp_path, "parquet")
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "lake": str(tmp_path)}
    options = parse_source_options({**given, "minPartitions": "2"})
    read = []
    for start, end in ((0, 4), (4, 7), (7, 20)):
        archive(table, topic, 0, start, end)
        parts = to_partitions(
            options, LakeLookup(str(tmp_path)), [OffsetRange(topic, 0, 2, 20)], {}
        )
        read.append([_offsets(options, part) for part in parts])
    # A micro-batch that is run again has the same tasks, and each of them the same rows.
    assert read == [[list(range(2, 11)), list(range(11, 20))]] * 3


def test_what_is_deleted_after_the_plan_is_read_from_the_lake_if_it_is_there_by_then(
    tidelog_broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["x"] * 20)
    table = make(tmp_path, "parquet")
    archive(table, topic, 0, 5, 8)
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "lake": str(tmp_path)}
    strict, tolerant = (
        parse_source_options({**given, "failOnDataLoss": each}) for each in ("true", "false")
    )
    lake = LakeLookup(str(tmp_path))
    (late,) = to_partitions(strict, lake, [OffsetRange(topic, 0, 6, 20)], {})
    (whole,) = to_partitions(strict, lake, [OffsetRange(topic, 0, 0, 20)], {})
    archive(table, topic, 0, 8, 12)
    delete_records_before(bootstrap, topic, 0, 10)
    assert _offsets(strict, late) == list(range(6, 20))
    # Offsets 0 to 5 were never archived: neither has them.
    with pytest.raises(DataLossError, match=f"{topic}-0, offsets 0 to 5: .* has 10 to 20 now"):
        _offsets(strict, whole)
    assert _offsets(tolerant, whole) == list(range(5, 20))


def test_a_lake_of_another_topic_is_refused(
    tidelog_broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["new"] * 5)
    table = make(tmp_path, "parquet")
    archive(table, topic, 0, 0, 5)
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "lake": str(tmp_path)}
    stream_start = {"startingOffsets": "earliest"}
    source = TidelogDataSource({**given, "failOnDataLoss": "false"})
    schema = spark_schema(include_headers=False)
    assert len(source.reader(schema).partitions()) == 1
    # What an archive of before topic ids were kept gives away is that it holds too much.
    archive(table, topic, 0, 5, 8)
    text = f"{topic}-0 ends at offset 5, and the lake holds it up to 8"
    with pytest.raises(DataLossError, match=text):
        TidelogDataSource(given).reader(schema).partitions()
    with pytest.raises(DataLossError, match=text):
        TidelogDataSource({**given, **stream_start}).streamReader(schema).initialOffset()
    going_on = TidelogDataSource(given).streamReader(schema)
    with pytest.raises(DataLossError, match=text):
        going_on.partitions({topic: {"0": 2}}, {topic: {"0": 5}})
    archive(table, topic, 0, 8, 9, topic_id=b"x" * 16)
    text = f"lake=.*: the topic {topic} .* made anew. Leave the option out"
    with pytest.raises(OptionError, match=text):
        source.reader(schema).partitions()
    going_on = source.streamReader(schema)
    with pytest.raises(OptionError, match=text):
        going_on.partitions({topic: {"0": 2}}, {topic: {"0": 5}})


def test_behind_the_lake_no_other_topic_is_read(
    tidelog_broker: Broker, topic: str, tmp_path: Path
) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["old"] * 10)
    table = make(tmp_path, "parquet")
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "lake": str(tmp_path)}
    strict, tolerant = (
        parse_source_options({**given, "failOnDataLoss": each}) for each in ("true", "false")
    )
    reader = TidelogDataSource(given).reader(spark_schema(include_headers=False))
    (part,) = reader.partitions()
    archive(table, topic, 0, 0, 5)
    delete_topic(bootstrap, topic)
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["new"] * 10)
    with pytest.raises(DataLossError, match=f"{topic}-0, offsets 5 to 10: .* made anew"):
        _offsets(strict, part)
    assert _offsets(tolerant, part) == list(range(10))


def _offsets(options: SourceOptions, part: InputPartition) -> list[int]:
    """What a task reads; Spark sends it the partition."""
    reader = RangeReader(options, include_headers=False, format=None)
    sent = pickle.loads(pickle.dumps(part))
    return [at for batch in reader.read(sent) for at in batch.column("offset").to_pylist()]
