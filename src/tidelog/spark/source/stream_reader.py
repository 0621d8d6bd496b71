"""A streaming query: the offsets of each micro-batch, and the ranges that tasks read.

Spark keeps one such object in a process of its own as long as the query runs, and asks it for the
next offsets as soon as a micro-batch is complete. What it says has been processed by then is where
the consumer group is brought to.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.offsets import (
    LATEST,
    AtOffsets,
    Everywhere,
    OffsetRange,
    Offsets,
    Position,
    offsets_from_json,
    offsets_to_json,
)
from tidelog.spark.source.group_commits import GroupCommits
from tidelog.spark.source.lake_lookup import LakeLookup
from tidelog.spark.source.options import SourceOptions
from tidelog.spark.source.planning import limit_rate, plan_stream, unsettled, waiting
from tidelog.spark.source.positions import Asked, beyond_ends, earliest_with_lake, find_positions
from tidelog.spark.source.range_partition import RangeReader, report_losses, to_partitions
from tidelog.spark.source.subscribed_topics import SubscribedTopics
from tidelog.spark.source.topic_identity import TopicIdentities

Json = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver and reads in tasks. Offsets are those of `offsets_to_json`."""

    def __init__(self, options: SourceOptions, reader: RangeReader) -> None:
        self._options = options
        self._reader = reader
        self._topics = SubscribedTopics(options)
        self._lake = LakeLookup(options.lake)
        self._group = GroupCommits.of(options)
        self._initial: Offsets | None = None
        self._is_start_recorded = False
        self._latest: Offsets = {}
        self._is_lake_checked = False
        self._identities = TopicIdentities()
        self._made_anew: set[TopicPartition] = set()
        """Partitions whose offsets are those of a topic that is gone, until a batch is planned."""
        self._is_available_now = False
        self._available_now: Offsets | None = None
        self._last_trigger_s: float | None = None

    def initialOffset(self) -> Json:  # noqa: N802
        """Where a query without a checkpoint begins; the same whenever this object is asked."""
        if self._initial is None:
            self._initial = self._find_start()
        return offsets_to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query reads what is there when it first asks, and ends.

        Not what is there now: the start is found after this, and may be the latest offset.
        """
        self._is_available_now = True

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """The end of the next micro-batch; `start` again if there is none to run.

        Spark asks when everything before `start` is processed and in its checkpoint.
        """
        begin = offsets_from_json(start)
        end = self._latest = self._find_latest(begin)
        # Behind the other calls: those wait for a broker that is away.
        self._commit_group(begin)
        self._look_for_topics_made_anew(begin)
        if self._must_record_start(begin):
            return start
        begin = self._without_made_anew(begin)
        new = unsettled(begin, end)
        if new:
            begin |= self._earliest(begin, new)
        if self._must_wait(begin, end, limit):
            return start
        if isinstance(limit, ReadMaxRows):
            # A limited end may be the very offset of the old topic, and Spark would see no news.
            whole = {name: end[name] for name in self._made_anew & end.keys()}
            end = limit_rate(begin, end, limit.max_rows) | whole
        self._last_trigger_s = time.monotonic()
        return offsets_to_json(end)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """For the progress of the query: what there is, whatever the limit."""
        return offsets_to_json(self._latest)

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        begin, stop = offsets_from_json(start), offsets_from_json(end)
        if begin == stop:
            return []
        if begin == self._initial and not self._is_start_recorded:
            # The first micro-batch is run again after a crash, from a start that is looked up anew.
            begin = {name: min(begin[name], stop[name]) for name in begin.keys() & stop.keys()}
        begin = self._without_made_anew(begin)
        self._made_anew.clear()
        self._check_lake(stop)
        earliest = self._earliest(begin, unsettled(begin, stop))
        plan = plan_stream(begin, stop, earliest, self._identities.is_same)
        report_losses(plan.losses, fails=self._options.fail_on_data_loss)
        ranges = self._ranges_to_read(plan.ranges)
        return to_partitions(self._options, self._lake, ranges, self._topics.topic_ids)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def commit(self, end: Json) -> None:
        """Spark tells this one micro-batch late; as a rule `latestOffset` has heard of it."""
        self._commit_group(offsets_from_json(end))

    def _ranges_to_read(self, planned: list[OffsetRange]) -> list[OffsetRange]:
        """What tasks are to read of a micro-batch: all of it."""
        return planned

    def _look_for_topics_made_anew(self, begin: Offsets) -> None:
        remade = self._identities.notice(self._topics.topic_ids)
        read = {name: offset for name, offset in begin.items() if name.topic in remade}
        self._made_anew |= read.keys()
        losses = [
            f"{name} was made anew after offset {offset} was read" for name, offset in read.items()
        ]
        report_losses(losses, fails=self._options.fail_on_data_loss)

    def _without_made_anew(self, begin: Offsets) -> Offsets:
        """Offsets as if partitions that were made anew were new, which they are."""
        return {name: offset for name, offset in begin.items() if name not in self._made_anew}

    def _earliest(self, begin: Offsets, names: set[TopicPartition]) -> Offsets:
        """Where partitions begin; the lake may have more of those that are new to the query.

        Of partitions that were made anew it has what was there before.
        """
        found = self._topics.earliest(names)
        new = {name: offset for name, offset in found.items() if name not in begin}
        coverage = self._lake.coverage(new, self._topics.topic_ids)
        return found | earliest_with_lake(coverage, new)

    def _check_lake(self, stop: Offsets) -> None:
        """Look once whether the lake is of these topics: who goes on has looked up no start."""
        if self._options.lake is None or self._is_lake_checked:
            return
        losses = beyond_ends(self._topics, self._lake.coverage(stop), {})
        report_losses(losses, fails=self._options.fail_on_data_loss)
        self._is_lake_checked = True

    def _commit_group(self, offsets: Offsets) -> None:
        if self._group is not None:
            self._group.bring_to(offsets)

    def _find_start(self) -> Offsets:
        options = self._options
        asked = Asked("starting", options.stream_start, options.start_falls_to_latest)
        extent, (found,) = find_positions(
            self._topics, self._lake, self._topics.partitions(), asked
        )
        self._identities.notice(self._topics.topic_ids)
        start, losses = extent.within(found, "start")
        report_losses([*extent.losses, *losses], fails=options.fail_on_data_loss)
        self._is_lake_checked = True
        return start

    def _find_latest(self, begin: Offsets) -> Offsets:
        if self._available_now is not None:
            return self._available_now
        latest = self._topics.latest()
        for _ in range(self._options.offset_retries):
            if all(offset <= latest.get(name, -1) for name, offset in begin.items()):
                break
            # A broker that has just started may not know all yet.
            time.sleep(self._options.offset_retry_interval_s)
            latest = self._topics.latest()
        if self._is_available_now:
            self._available_now = latest
        return latest

    def _must_record_start(self, begin: Offsets) -> bool:
        """Whether the first micro-batch has to be an empty one.

        Spark writes the end of a micro-batch to its checkpoint, and asks for the start of the first
        one again after a crash. Where the start is the latest offset the answer would be another,
        and what lies between would never be read.
        """
        is_first = not self._is_start_recorded and begin == self._initial
        self._is_start_recorded = True
        return is_first and depends_on_latest(
            self._options.stream_start, self._options.start_falls_to_latest
        )

    def _must_wait(self, begin: Offsets, end: Offsets, limit: ReadLimit) -> bool:
        """Whether minOffsetsPerTrigger lets the micro-batch wait for more."""
        least = self._options.min_offsets_per_trigger
        if least is None or isinstance(limit, ReadAllAvailable) or self._is_available_now:
            return False
        if self._last_trigger_s is None or waiting(begin, end) >= least:
            return False
        return time.monotonic() - self._last_trigger_s < self._options.max_trigger_delay_s


def depends_on_latest(position: Position, falls_to_latest: bool) -> bool:
    """Whether the position would be another one if it were looked up later."""
    if isinstance(position, Everywhere):
        return position.offset == LATEST
    if isinstance(position, AtOffsets):
        return LATEST in position.offsets.values()
    return falls_to_latest
