"""A batch query: everything between two positions, planned once and read by tasks."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from tidelog.spark.errors import OptionError
from tidelog.spark.offsets import AtTimestamp, Offsets
from tidelog.spark.source.lake_lookup import LakeLookup
from tidelog.spark.source.options import SourceOptions
from tidelog.spark.source.planning import plan_batch
from tidelog.spark.source.positions import Asked, find_positions
from tidelog.spark.source.push_down import Narrowing, narrow
from tidelog.spark.source.range_partition import RangeReader, report_losses, to_partitions
from tidelog.spark.source.subscribed_topics import SubscribedTopics


class BatchReader(DataSourceReader):
    """Plans on the driver and reads in tasks.

    Spark plans a DataFrame once, at its first action: later actions read the same offsets.
    """

    def __init__(self, options: SourceOptions, reader: RangeReader) -> None:
        self._options = options
        self._reader = reader
        self._narrowing = Narrowing()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        topics, lake = SubscribedTopics(options), LakeLookup(options.lake)
        asked = [
            Asked("starting", options.batch_start, options.start_falls_to_latest),
            Asked("ending", options.batch_end, falls_to_latest=True),
        ]
        oldest_ms = self._narrowing.timestamp_ms_min
        if oldest_ms is not None:
            asked.append(Asked("starting", AtTimestamp(oldest_ms), falls_to_latest=True))
        extent, (start, end, *newer) = find_positions(topics, lake, topics.partitions(), *asked)
        start, before = extent.within(start, "start")
        end, after = extent.within(end, "end")
        report_losses([*extent.losses, *before, *after], fails=options.fail_on_data_loss)
        _check_order(start, end)
        for offsets in newer:
            start = {name: max(start[name], offset) for name, offset in offsets.items()}
        ranges = [
            self._narrowing.clip(each)
            for each in plan_batch(start, end)
            if self._narrowing.keeps(each.name)
        ]
        return to_partitions(options, lake, ranges, topics.topic_ids)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


class PushDownBatchReader(BatchReader):
    """A batch reader that reads less where filters allow it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._narrowing = narrow(filters)
        return filters


def _check_order(start: Offsets, end: Offsets) -> None:
    """Options of unlike kinds, such as an offset and a time, can be compared only now."""
    for name in sorted(start.keys() & end.keys()):
        if start[name] > end[name]:
            raise OptionError(
                f"the starting options give {name} the start {start[name]}, after its end "
                f"{end[name]} by the ending options"
            )
