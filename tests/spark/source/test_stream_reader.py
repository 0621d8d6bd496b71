"""The stream reader as Spark calls it, with a real broker and no Spark: its decisions."""

import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from tests.spark.lake.archived import archive, make
from tests.spark.topics import (
    add_partitions,
    committed,
    create_topic,
    delete_records_before,
    delete_topic,
    publish,
)
from tidelog.spark.data_source import TidelogDataSource
from tidelog.spark.errors import DataLossError, OptionError
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.schema import spark_schema
from tidelog.spark.source.range_partition import RangePartition
from tidelog.spark.source.stream_reader import StreamReader
from tidelog.testing import Broker
from tidelog.testing.broker import free_port

ALL = ReadAllAvailable()

MakeReader = Callable[..., StreamReader]


@pytest.fixture
def bootstrap(tidelog_broker: Broker) -> str:
    return tidelog_broker.bootstrap_servers


@pytest.fixture
def reader_of(bootstrap: str, topic: str) -> MakeReader:
    def make(**options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
        made = TidelogDataSource(given).streamReader(spark_schema(include_headers=False))
        assert isinstance(made, StreamReader)
        return made

    return make


def ranges(reader: StreamReader, start: Any, end: Any) -> list[OffsetRange]:
    planned = reader.partitions(start, end)
    assert all(isinstance(each, RangePartition) for each in planned)
    return [each.range for each in planned if isinstance(each, RangePartition)]


def values(reader: StreamReader, start: Any, end: Any) -> list[bytes]:
    # Spark sends the reader and each partition to the tasks.
    sent = pickle.loads(pickle.dumps((reader, reader.partitions(start, end))))
    return [
        value
        for partition in sent[1]
        for batch in sent[0].read(partition)
        for value in batch.column("value").to_pylist()
    ]


def test_a_stream_reads_what_comes(bootstrap: str, topic: str, reader_of: MakeReader) -> None:
    create_topic(bootstrap, topic, 2)
    publish(bootstrap, topic, ["a", "b"], partition=1)
    reader = reader_of(startingOffsets="earliest")
    start = reader.initialOffset()
    assert start == {topic: {"0": 0, "1": 0}}
    end = reader.latestOffset(start, ALL)
    assert end == {topic: {"0": 0, "1": 2}}
    assert values(reader, start, end) == [b"a", b"b"]
    assert reader.latestOffset(end, ALL) == end
    assert reader.partitions(end, end) == []
    publish(bootstrap, topic, ["c"], partition=0)
    assert reader.reportLatestOffset() == end
    later = reader.latestOffset(end, ALL)
    assert values(reader, end, later) == [b"c"]


def test_another_process_goes_on_from_the_checkpoint(
    bootstrap: str, topic: str, reader_of: MakeReader
) -> None:
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["a"])
    first = reader_of(startingOffsets="earliest")
    end = first.latestOffset(first.initialOffset(), ALL)
    publish(bootstrap, topic, ["b"])
    again = reader_of(startingOffsets="earliest")
    # A batch that was planned and not completed is planned as it was.
    assert values(again, again.initialOffset(), end) == [b"a"]
    assert values(again, end, again.latestOffset(end, ALL)) == [b"b"]


def test_a_start_at_the_end_is_recorded_before_anything_is_read(
    bootstrap: str, topic: str, reader_of: MakeReader
) -> None:
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["old"])
    reader = reader_of()
    start = reader.initialOffset()
    assert start == {topic: {"0": 1}}
    publish(bootstrap, topic, ["new"])
    # The first micro-batch is empty: its end puts the start into the checkpoint.
    assert reader.latestOffset(start, ALL) == start
    end = reader.latestOffset(start, ALL)
    assert values(reader, start, end) == [b"new"]
    # After a crash in the first micro-batch Spark asks for the start again: it is another one now.
    crashed = reader_of()
    assert crashed.initialOffset() == {topic: {"0": 2}}
    assert crashed.partitions(crashed.initialOffset(), start) == []
    assert values(crashed, start, crashed.latestOffset(start, ALL)) == [b"new"]


def test_new_partitions_are_read_from_their_beginning(
    bootstrap: str, topic: str, reader_of: MakeReader
) -> None:
    create_topic(bootstrap, topic, 1)
    reader = reader_of()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    add_partitions(bootstrap, topic, 2)
    publish(bootstrap, topic, ["x"], partition=1)
    end = reader.latestOffset(start, ALL)
    assert end == {topic: {"0": 0, "1": 1}}
    assert values(reader, start, end) == [b"x"]


def test_new_partitions_are_read_from_the_beginning_of_the_lake(
    bootstrap: str, topic: str, reader_of: MakeReader, tmp_path: Path
) -> None:
    create_topic(bootstrap, topic, 2)
    publish(bootstrap, topic, [f"{at}" for at in range(12)], partition=1)
    archive(make(tmp_path / "lake", "parquet"), topic, 1, 0, 10)
    delete_records_before(bootstrap, topic, 1, 10)
    reader = reader_of(lake=str(tmp_path / "lake"))
    start = {topic: {"0": 0}}
    assert reader.latestOffset(start, ReadMaxRows(6)) == {topic: {"0": 0, "1": 6}}
    end = reader.latestOffset(start, ALL)
    assert ranges(reader, start, end) == [OffsetRange(topic, 1, 0, 12)]
    assert len(values(reader, start, end)) == 12


def test_new_topics_of_a_pattern_are_read(bootstrap: str, topic: str) -> None:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribePattern": topic + "-.*",
        "maxOffsetsPerTrigger": "2",
    }
    reader = TidelogDataSource(options).streamReader(spark_schema(include_headers=False))
    assert isinstance(reader, StreamReader)
    assert reader.initialOffset() == {}
    assert reader.latestOffset({}, ReadMaxRows(2)) == {}
    create_topic(bootstrap, topic + "-a", 1)
    publish(bootstrap, topic + "-a", ["x", "y", "z"])
    end = reader.latestOffset({}, ReadMaxRows(2))
    assert end == {topic + "-a": {"0": 2}}
    assert values(reader, {}, end) == [b"x", b"y"]


def test_limits_share_out_what_waits(bootstrap: str, topic: str, reader_of: MakeReader) -> None:
    create_topic(bootstrap, topic, 2)
    publish(bootstrap, topic, ["x"] * 90, partition=0)
    publish(bootstrap, topic, ["x"] * 10, partition=1)
    reader = reader_of(startingOffsets="earliest", maxOffsetsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(20)) == {topic: {"0": 18, "1": 2}}
    assert reader.reportLatestOffset() == {topic: {"0": 90, "1": 10}}
    # Trigger.Once asks for everything.
    assert reader.latestOffset(start, ALL) == {topic: {"0": 90, "1": 10}}


def test_a_batch_waits_until_enough_is_there(
    bootstrap: str, topic: str, reader_of: MakeReader
) -> None:
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["x"])
    reader = reader_of(startingOffsets="earliest", minOffsetsPerTrigger="3", maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(3)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first == {topic: {"0": 1}}
    publish(bootstrap, topic, ["x"] * 2)
    assert reader.latestOffset(first, limit) == first
    publish(bootstrap, topic, ["x"])
    assert reader.latestOffset(first, limit) == {topic: {"0": 4}}


def test_a_batch_does_not_wait_for_ever(bootstrap: str, topic: str, reader_of: MakeReader) -> None:
    create_topic(bootstrap, topic, 1)
    reader = reader_of(startingOffsets="earliest", minOffsetsPerTrigger="3", maxTriggerDelay="1ms")
    limit = reader.getDefaultReadLimit()
    start = reader.latestOffset(reader.initialOffset(), limit)
    publish(bootstrap, topic, ["x"])
    time.sleep(0.01)
    assert reader.latestOffset(start, limit) == {topic: {"0": 1}}


def test_available_now_ends_with_what_was_there(
    bootstrap: str, topic: str, reader_of: MakeReader
) -> None:
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["x"] * 5)
    reader = reader_of(
        startingOffsets="earliest", maxOffsetsPerTrigger="3", minOffsetsPerTrigger="3"
    )
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(3))
    assert first == {topic: {"0": 3}}
    publish(bootstrap, topic, ["late"])
    second = reader.latestOffset(first, ReadMaxRows(3))
    assert second == {topic: {"0": 5}}
    assert reader.latestOffset(second, ReadMaxRows(3)) == second


def test_available_now_ends_after_a_start_that_moves(
    bootstrap: str, topic: str, reader_of: MakeReader
) -> None:
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["old"])
    reader = reader_of()
    reader.prepareForTriggerAvailableNow()
    # Spark asks for the start only then, and the topic does not stand still.
    publish(bootstrap, topic, ["old"])
    start = reader.initialOffset()
    assert start == {topic: {"0": 2}}
    publish(bootstrap, topic, ["new"])
    assert reader.latestOffset(start, ALL) == start
    end = reader.latestOffset(start, ALL)
    assert values(reader, start, end) == [b"new"]
    publish(bootstrap, topic, ["late"])
    assert reader.latestOffset(end, ALL) == end


def test_ranges_are_split_into_tasks(bootstrap: str, topic: str, reader_of: MakeReader) -> None:
    create_topic(bootstrap, topic, 1)
    start, end = {topic: {"0": 0}}, {topic: {"0": 10}}
    assert len(ranges(reader_of(minPartitions="4"), start, end)) == 4
    parts = ranges(reader_of(maxRecordsPerPartition="6"), start, end)
    assert [each.size for each in parts] == [5, 5]


def test_a_start_is_found_by_time(bootstrap: str, topic: str, reader_of: MakeReader) -> None:
    create_topic(bootstrap, topic, 2)
    publish(bootstrap, topic, ["x"] * 5, timestamp_ms=lambda at: 1000 + at)
    with pytest.raises(OptionError, match=f"startingTimestamp: {topic}-1 has no record"):
        reader_of(startingTimestamp="1003").initialOffset()
    reader = reader_of(startingTimestamp="1003", startingOffsetsByTimestampStrategy="latest")
    assert reader.initialOffset() == {topic: {"0": 3, "1": 0}}


def test_deleted_topics_fail_the_query_or_are_left(
    bootstrap: str, topic: str, reader_of: MakeReader
) -> None:
    create_topic(bootstrap, topic, 1)
    create_topic(bootstrap, topic + "-gone", 1)
    publish(bootstrap, topic, ["kept"])
    publish(bootstrap, topic + "-gone", ["lost"])
    both = f"{topic},{topic}-gone"
    strict = reader_of(subscribe=both, startingOffsets="earliest")
    start = strict.initialOffset()
    delete_topic(bootstrap, topic + "-gone")
    end = strict.latestOffset(start, ALL)
    assert end == {topic: {"0": 1}}
    with pytest.raises(DataLossError, match=f"{topic}-gone-0 is gone.*failOnDataLoss"):
        strict.partitions(start, end)
    tolerant = reader_of(subscribe=both, failOnDataLoss="false")
    assert values(tolerant, start, tolerant.latestOffset(start, ALL)) == [b"kept"]


def test_topics_made_anew_fail_the_query_or_are_read_from_their_beginning(
    bootstrap: str, topic: str, reader_of: MakeReader
) -> None:
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["old"] * 5)
    start = {topic: {"0": 5}}
    delete_topic(bootstrap, topic)
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["new"] * 2)
    strict = reader_of()
    end = strict.latestOffset(start, ALL)
    with pytest.raises(DataLossError, match=f"{topic}-0 was read up to offset 5 and ends at 2"):
        strict.partitions(start, end)
    tolerant = reader_of(failOnDataLoss="false")
    assert values(tolerant, start, tolerant.latestOffset(start, ALL)) == [b"new", b"new"]


def test_topics_made_anew_are_noticed_by_more_than_their_size(
    bootstrap: str, topic: str, reader_of: MakeReader
) -> None:
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["old"] * 5)
    strict = reader_of(startingOffsets="earliest")
    tolerant = reader_of(startingOffsets="earliest", failOnDataLoss="false")
    start = {topic: {"0": 5}}
    for reader in (strict, tolerant):
        assert reader.latestOffset(reader.initialOffset(), ALL) == start
    delete_topic(bootstrap, topic)
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, [f"new {at}" for at in range(8)])
    with pytest.raises(DataLossError, match=f"{topic}-0 was made anew after offset 5 was read"):
        strict.latestOffset(start, ALL)
    # Limited to 5 offsets it would end where the old topic did: as if nothing had come.
    end = tolerant.latestOffset(start, ReadMaxRows(5))
    assert values(tolerant, start, end) == [f"new {at}".encode() for at in range(8)]
    publish(bootstrap, topic, ["new 8"])
    assert values(tolerant, end, tolerant.latestOffset(end, ALL)) == [b"new 8"]


def test_deleted_records_fail_the_query_or_are_passed_over(
    bootstrap: str, topic: str, reader_of: MakeReader
) -> None:
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, [f"{at}" for at in range(10)])
    start, end = {topic: {"0": 2}}, {topic: {"0": 10}}
    delete_records_before(bootstrap, topic, 0, 6)
    with pytest.raises(DataLossError, match=topic):
        values(reader_of(), start, end)
    assert values(reader_of(failOnDataLoss="false"), start, end) == [b"6", b"7", b"8", b"9"]
    given = f'{{"{topic}": {{"0": 2}}}}'
    with pytest.raises(DataLossError, match=f"{topic}-0 has offsets from 6 to 10, not the start 2"):
        reader_of(startingOffsets=given).initialOffset()
    tolerant = reader_of(startingOffsets=given, failOnDataLoss="false")
    assert tolerant.initialOffset() == {topic: {"0": 6}}


def test_the_group_is_where_spark_says_that_all_is_processed(
    bootstrap: str, topic: str, reader_of: MakeReader
) -> None:
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["x"] * 3)
    reader = reader_of(startingOffsets="earliest", groupId=topic)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    # Planned is not processed.
    reader.partitions(reader.initialOffset(), end)
    assert committed(bootstrap, topic) == {(topic, 0): 0}
    reader.latestOffset(end, ALL)
    assert committed(bootstrap, topic) == {(topic, 0): 3}


def test_a_broker_that_restarts_does_not_fail_the_stream(topic: str) -> None:
    broker = Broker(mode="process", port=free_port())
    with broker:
        bootstrap = broker.bootstrap_servers
        create_topic(bootstrap, topic, 1)
        publish(bootstrap, topic, ["x"])
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "groupId": topic,
        }
        reader = TidelogDataSource(options).streamReader(spark_schema(include_headers=False))
        assert isinstance(reader, StreamReader)
        end = reader.latestOffset(reader.initialOffset(), ALL)
        broker.stop()
        again = threading.Timer(0.5, broker.start)
        again.start()
        try:
            assert reader.latestOffset(end, ALL) == end
            assert values(reader, {topic: {"0": 0}}, end) == [b"x"]
            assert committed(bootstrap, topic) == {(topic, 0): 1}
        finally:
            again.join()
