"""Compare two copies of the same records, for example a topic and its archive."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.jobs.audit import Ranges
from tidelog.spark.jobs.offset_runs import record_bytes, whole_record_hash

OFFSETS_PER_BLOCK = 1_000
SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class Difference:
    """A block of offsets, `first` to `last`, in which the copies are not the same."""

    topic: str
    partition: int
    first: int
    last: int
    records: int
    other_records: int

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "first": self.first,
            "last": self.last,
            "live_records": self.records,
            "lake_records": self.other_records,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Over which offsets was compared, how many blocks differ, and the first of them."""

    ranges: Ranges
    blocks_that_differ: int
    differences: tuple[Difference, ...]

    def problems(self) -> list[str]:
        """In words, what differs."""
        return [
            f"{each.topic}-{each.partition}: live and lake differ within offsets"
            f" {each.first}-{each.last} ({each.records} and {each.other_records} records)"
            for each in self.differences
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "equal": not self.blocks_that_differ,
            "ranges": [
                {"topic": name.topic, "partition": name.partition, "start": start, "end": end}
                for name, (start, end) in sorted(self.ranges.items())
            ],
            "blocks_that_differ": self.blocks_that_differ,
            "differences": [each.to_json() for each in self.differences],
        }


def compare(rows: DataFrame, others: DataFrame, ranges: Ranges) -> Comparison:
    """Compare all records of two DataFrames by offset, key, value, timestamp and headers.

    `ranges` says which offsets both are of. Blocks of OFFSETS_PER_BLOCK offsets are compared by
    their number of records and the sum of their hashes.
    """
    joined = _blocks(rows, "").join(
        _blocks(others, "other_"), ["topic", "partition", "block"], "full_outer"
    )
    is_same = (
        F.col("records").eqNullSafe(F.col("other_records"))
        & F.col("checksum").eqNullSafe(F.col("other_checksum"))
        & F.col("size_bytes").eqNullSafe(F.col("other_size_bytes"))
    )
    different = joined.where(~is_same).persist()
    try:
        count = different.count()
        first = different.orderBy("topic", "partition", "block").limit(SHOWN_MAX).collect()
    finally:
        different.unpersist()
    return Comparison(ranges, count, tuple(_difference(row, ranges) for row in first))


def _blocks(rows: DataFrame, prefix: str) -> DataFrame:
    block = F.floor(F.col("offset") / F.lit(OFFSETS_PER_BLOCK)).alias("block")
    return rows.groupBy("topic", "partition", block).agg(
        F.count("*").alias(f"{prefix}records"),
        F.sum(whole_record_hash().cast("decimal(38,0)")).alias(f"{prefix}checksum"),
        F.sum(record_bytes()).alias(f"{prefix}size_bytes"),
    )


def _difference(row: Any, ranges: Ranges) -> Difference:
    first = row.block * OFFSETS_PER_BLOCK
    start, end = ranges[TopicPartition(row.topic, row.partition)]
    return Difference(
        row.topic,
        row.partition,
        max(first, start),
        min(first + OFFSETS_PER_BLOCK, end) - 1,
        row.records or 0,
        row.other_records or 0,
    )
