"""A range of offsets as a task gets it, and how the task reads it."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tidelog.spark.errors import DataLossError
from tidelog.spark.lake_lookup import LakeLookup
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.options import SourceOptions
from tidelog.spark.planning import split_ranges
from tidelog.spark.worker_memory import freeze_imports

if TYPE_CHECKING:
    from tidelog.spark.formats import ValueFormat
    from tidelog.spark.lake.union import Where

_log = logging.getLogger(__name__)


class RangePartition(InputPartition):
    """What one task reads: a range of one partition, from the broker or from the lake."""

    def __init__(self, wanted: OffsetRange, where: "Where" = "broker") -> None:
        self.range = wanted
        self.where = where

    def __repr__(self) -> str:
        return f"RangePartition({self.range}, {self.where})"


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
        if partition.where == "broker":
            from tidelog.spark.fetching import read_range

            settings = self.options.fetch_settings(include_headers=self.include_headers)
            return read_range(settings, partition.range)
        from tidelog.spark.lake.reading import LakeTable

        assert self.options.lake is not None
        table = LakeTable(self.options.lake)
        return table.read_range(partition.range, include_headers=self.include_headers)


def to_partitions(
    options: SourceOptions, lake: LakeLookup, ranges: Iterable[OffsetRange]
) -> list[InputPartition]:
    """Ranges cut into tasks: by size, and where the lake ends and the broker begins."""
    parts = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
    coverage = lake.coverage(each.name for each in parts) if parts else {}
    if not coverage:
        return [RangePartition(each) for each in parts]
    from tidelog.spark.lake.union import split_with_lake

    return [
        RangePartition(piece, where)
        for each in parts
        for where, piece in split_with_lake(each, coverage.get(each.name))
    ]


def report_losses(losses: list[str], *, fails: bool) -> None:
    """Raise or warn, as the option failOnDataLoss says."""
    if not losses:
        return
    text = "; ".join(losses)
    if fails:
        raise DataLossError(f"{text}. Set the option failOnDataLoss to false to go on without them")
    _log.warning("some records cannot be read (failOnDataLoss is false): %s", text)
