"""What the driver learns from an archive, and how broker and archive become one."""

from pathlib import Path

from tests.spark.lake.archived import START_US, archive, make
from tests.spark.topics import create_topic, delete_records_before, publish
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.broker_calls import BrokerCalls
from tidelog.spark.lake_lookup import LakeLookup
from tidelog.spark.offsets import AtTimestamp, Everywhere, OffsetRange
from tidelog.spark.options import parse_source_options
from tidelog.spark.positions import Asked, find_positions
from tidelog.spark.range_partition import RangePartition, to_partitions
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
        BrokerCalls(options),
        lake,
        {name},
        Asked("starting", Everywhere(-2), False),
        Asked("starting", AtTimestamp(START_MS + 1), False),
    )
    assert extent.earliest == first == {name: 0}
    assert extent.latest == {name: 20}
    assert by_time == {name: 4}
    parts = to_partitions(options, lake, [OffsetRange(topic, 0, 4, 20)])
    assert [
        (part.where, part.range.start, part.range.end)
        for part in parts
        if isinstance(part, RangePartition)
    ] == [("lake", 4, 10), ("broker", 10, 20)]
