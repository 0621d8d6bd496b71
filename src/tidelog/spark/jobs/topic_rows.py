"""The rows that jobs work on: those of a topic, or those of its archive in a lake."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidelog.client.cluster import ClusterClient
from tidelog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.connections import lent_cluster
from tidelog.spark.errors import OptionError, SparkError
from tidelog.spark.jobs.archived_counts import ArchivedCount, count_records
from tidelog.spark.jobs.audit import Ranges
from tidelog.spark.jobs.gaps import Archived, Compacted, Explanation, SeenInLog
from tidelog.spark.lake.data_frame import read as read_lake
from tidelog.spark.lake.reading import LakeTable
from tidelog.spark.offsets import EARLIEST, LATEST, Offsets, offsets_to_json
from tidelog.spark.schema import arrow_schema
from tidelog.spark.source.lake_lookup import LakeLookup
from tidelog.spark.source.options import parse_batch_options
from tidelog.spark.source.subscribed_topics import SubscribedTopics

_TOPIC_RESOURCE = 2
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to begin or to end: an offset, a time, or so many offsets before the end.

    With none of them it is the first offset there is as a beginning, and the end as an end.
    """

    offset: int | None = None
    timestamp_ms: int | None = None
    tail: int | None = None


@dataclass(frozen=True, slots=True)
class TopicRows:
    """Rows with the columns of the source, and what is known of them.

    `ranges` are the offsets that they are of, by partition; `origin` is the file that a row is in.
    """

    frame: DataFrame
    ranges: Ranges
    explanation: Explanation
    origin: Column | None = None


class Topic:
    """A topic at its brokers."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: Sequence[int] = (),
        read_committed: bool = True,
        include_headers: bool = False,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._options = {
            "kafka.bootstrap.servers": bootstrap,
            "kafka.isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "includeHeaders": "true" if include_headers else "false",
        }
        chosen = (
            {"assign": json.dumps({topic: sorted(set(partitions))})}
            if partitions
            else {"subscribe": topic}
        )
        self._topics = SubscribedTopics(parse_batch_options({**self._options, **chosen}))

    def partition_count(self) -> int:
        """How many partitions the topic has, also if not all are to be read."""
        with lent_cluster(self._bootstrap) as pooled:
            client = ClusterClient(pooled.cluster, _TIMEOUT_S)
            (found,) = client.metadata([self._topic]).topics
        return len(found.partitions)

    def ranges(self, start: Bound, end: Bound) -> Ranges:
        """The offsets between two bounds. OptionError if there is no such topic or partition."""
        names = self._topics.partitions()
        earliest, latest, starts, ends = self._topics.list_offsets(
            dict.fromkeys(names, EARLIEST),
            dict.fromkeys(names, LATEST),
            _times(names, start),
            _times(names, end),
        )
        extent = {name: (earliest[name], latest[name]) for name in earliest.keys() & latest.keys()}
        return bounded(extent, start, end, starts, ends)

    def rows(self, spark: SparkSession, ranges: Ranges) -> TopicRows:
        """The rows of some ranges."""
        offsets = [{name: span[at] for name, span in ranges.items()} for at in (0, 1)]
        by_topic = {self._topic: sorted(name.partition for name in ranges)}
        frame = (
            spark.read.format("tidelog")
            .options(**self._options)
            .option("assign", json.dumps(by_topic))
            .option("startingOffsets", json.dumps(offsets_to_json(offsets[0])))
            .option("endingOffsets", json.dumps(offsets_to_json(offsets[1])))
            .load()
        )
        return TopicRows(frame, ranges, self._explanation())

    def _explanation(self) -> Explanation:
        return Compacted() if self._is_compacted() else SeenInLog(self._bootstrap)

    def _is_compacted(self) -> bool:
        resource = DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE,
            resource_name=self._topic,
            configuration_keys=["cleanup.policy"],
        )
        with lent_cluster(self._bootstrap) as pooled:
            response = ClusterClient(pooled.cluster, _TIMEOUT_S).ask_any(
                DescribeConfigsRequest(resources=[resource]),
                DescribeConfigsResponse,
                lambda response: response.results[0].error_code,
            )
        result = response.results[0]
        if result.error_code:
            raise SparkError(
                f"no settings of the topic {self._topic}: {ErrorCode(result.error_code).name}"
            )
        return any(
            each.name == "cleanup.policy" and "compact" in (each.value or "")
            for each in result.configs
        )


class ArchivedTopic:
    """A topic in a lake."""

    def __init__(self, path: str, topic: str, *, partitions: Sequence[int] = ()) -> None:
        self._path = path
        self._topic = topic
        table = LakeTable(path)
        self._has_files = bool(table.snapshot.files)
        coverage = table.coverage(topic)
        self._counts = table.record_counts(topic)
        if not coverage:
            raise OptionError(f"the lake at {path} has no records of the topic {topic}")
        self._partition_count = max(coverage) + 1
        for partition in partitions:
            if partition not in coverage:
                raise OptionError(f"the lake at {path} has no partition {partition} of {topic}")
        self._coverage = {
            TopicPartition(topic, partition): covered
            for partition, covered in coverage.items()
            if partition in (partitions or coverage)
        }

        holes = table.holes(topic)
        self._explanation = Archived(
            self._coverage,
            {name: holes[name.partition] for name in self._coverage if name.partition in holes},
        )

    def partition_count(self) -> int:
        """How many partitions the lake knows of, also if not all are to be read."""
        return self._partition_count

    def ranges(self, start: Bound, end: Bound) -> Ranges:
        """The offsets between two bounds that the lake covers."""
        lookup = LakeLookup(self._path)
        starts, ends = (
            lookup.first_not_older(_times(self._coverage, bound)) for bound in (start, end)
        )
        return bounded(self._coverage, start, end, starts, ends)

    def counts(self, spark: SparkSession) -> tuple[ArchivedCount, ...]:
        """How many records were archived, and how many are there, over the whole coverage."""
        expected = {}
        for name, (_, end) in self._coverage.items():
            count = self._counts.get(name.partition)
            if count is not None:
                expected[name] = ArchivedCount(*name, count.start, end, count.records)
        return count_records(read_lake(spark, self._path), expected)

    def rows(self, spark: SparkSession, ranges: Ranges) -> TopicRows:
        """The rows of some ranges."""
        columns = list(arrow_schema(include_headers=True).names)
        frame = read_lake(spark, self._path).where(F.col("topic") == self._topic)
        if not self._has_files:
            return TopicRows(frame.select(*columns), ranges, self._explanation)
        # A file that is read by several tasks is cut into blocks.
        origin = F.concat_ws(":", "_metadata.file_path", "_metadata.file_block_start")
        frame = within(frame.select(*columns, origin.alias("origin")), ranges)
        return TopicRows(frame, ranges, self._explanation, F.col("origin"))


def bounded(extent: Ranges, start: Bound, end: Bound, starts: Offsets, ends: Offsets) -> Ranges:
    """What two bounds leave of each partition; `starts` and `ends` were found by time."""
    return {
        name: (
            first := _at(start, low, high, low, starts.get(name, -1)),
            max(first, _at(end, low, high, high, ends.get(name, -1))),
        )
        for name, (low, high) in sorted(extent.items())
    }


def common(one: Ranges, other: Ranges) -> Ranges:
    """The offsets that both have; partitions without any are left out."""
    found = {}
    for name in one.keys() & other.keys():
        start = max(one[name][0], other[name][0])
        end = min(one[name][1], other[name][1])
        if start < end:
            found[name] = (start, end)
    return found


def within(rows: DataFrame, ranges: Ranges) -> DataFrame:
    """The rows whose offsets are in the ranges."""
    wanted = rows.sparkSession.createDataFrame(
        [(*name, start, end) for name, (start, end) in ranges.items()],
        "topic string, partition int, start long, end long",
    )
    joined = rows.join(F.broadcast(wanted), ["topic", "partition"])
    chosen = joined.where((F.col("offset") >= F.col("start")) & (F.col("offset") < F.col("end")))
    return chosen.select(*rows.columns)


def _times(names: Mapping[TopicPartition, object] | set[TopicPartition], bound: Bound) -> Offsets:
    return {} if bound.timestamp_ms is None else dict.fromkeys(names, bound.timestamp_ms)


def _at(bound: Bound, low: int, high: int, default: int, by_time: int) -> int:
    if bound.timestamp_ms is not None:
        # No record is that new: what is asked begins, or ends, behind the last one.
        wanted = by_time if by_time >= 0 else high
    elif bound.tail is not None:
        wanted = high - bound.tail
    else:
        wanted = default if bound.offset is None else bound.offset
    return min(max(wanted, low), high)
