"""A range of offsets as a task gets it, and how the task reads it."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tidelog.protocol.uuids import ZERO_UUID
from tidelog.spark.errors import DataLossError
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.runtime.worker_memory import freeze_imports
from tidelog.spark.source.lake_lookup import LakeLookup
from tidelog.spark.source.options import SourceOptions
from tidelog.spark.source.planning import split_ranges

if TYPE_CHECKING:
    from tidelog.spark.formats import ValueFormat

_log = logging.getLogger(__name__)


class RangePartition(InputPartition):
    """What one task reads: a range of one partition.

    `covered` are the offsets `[start, end)` of the partition that the lake held when the range was
    planned: the task reads these there and the others from the broker, one after the other.
    `topic_id` is the id of the topic then, if the brokers told one.
    """

    def __init__(
        self,
        wanted: OffsetRange,
        covered: tuple[int, int] | None = None,
        topic_id: bytes | None = None,
    ) -> None:
        self.range = wanted
        self.covered = covered
        self.topic_id = topic_id

    def __repr__(self) -> str:
        return f"RangePartition({self.range}, {self.covered})"


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Reads ranges in tasks; it is sent to them.

    `include_headers` may be set for the format's sake where the query does not show headers.
    """

    options: SourceOptions
    include_headers: bool
    format: "ValueFormat | None"

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range. Spark hands in a partition of its own if there is none to read."""
        if not isinstance(partition, RangePartition):
            return
        for batch in self._batches(partition):
            decoded = batch if self.format is None else self.format.decode(batch)
            if decoded.num_rows:
                yield decoded
        freeze_imports()

    def _batches(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        if self.options.lake is None:
            from tidelog.spark.source.fetching import read_range

            settings = self.options.fetch_settings(include_headers=self.include_headers)
            return read_range(settings, partition.range, partition.topic_id)
        from tidelog.spark.lake.union_reading import read_lake_and_broker

        return read_lake_and_broker(
            self.options,
            partition.range,
            partition.covered,
            partition.topic_id,
            include_headers=self.include_headers,
        )


def to_partitions(
    options: SourceOptions,
    lake: LakeLookup,
    ranges: Iterable[OffsetRange],
    topic_ids: Mapping[str, bytes],
) -> list[InputPartition]:
    """Ranges cut into tasks by size alone.

    Where the lake ends is no cut: it may end elsewhere when a micro-batch is run again, and the
    sinks rely on each task having the rows that it had before.
    """
    parts = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
    coverage = lake.coverage((each.name for each in parts), topic_ids) if parts else {}
    ids = {topic: each for topic, each in topic_ids.items() if each != ZERO_UUID}
    return [RangePartition(each, coverage.get(each.name), ids.get(each.topic)) for each in parts]


def report_losses(losses: list[str], *, fails: bool) -> None:
    """Raise or warn, as the option failOnDataLoss says."""
    if not losses:
        return
    text = "; ".join(losses)
    if fails:
        raise DataLossError(f"{text}. Set the option failOnDataLoss to false to go on without them")
    _log.warning("some records cannot be read (failOnDataLoss is false): %s", text)
