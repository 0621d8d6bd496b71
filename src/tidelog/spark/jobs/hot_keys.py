"""Which partitions carry too much, which keys cause it, and what splitting those would give."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidelog.spark.jobs.key_splitting import KeyLoad, skew, split_load
from tidelog.spark.jobs.offset_runs import record_bytes

TOP = 20
THRESHOLD = 0.1
WAYS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """What one partition has; shares are parts of the topic, from 0 to 1."""

    partition: int
    rows: int
    row_share: float
    size_bytes: int
    byte_share: float
    keys: int
    null_keys: int


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key by its records. `key_share` is its part of the records that have a key: what a
    partitioner goes by; it is hot if that is above the threshold."""

    key: bytes
    rows: int
    row_share: float
    key_share: float
    size_bytes: int
    partitions: tuple[int, ...]
    is_hot: bool


@dataclass(frozen=True, slots=True)
class Split:
    """What dealing the hot keys over `ways` partitions would give."""

    ways: int
    row_skew: float
    byte_skew: float
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HotKeysReport:
    """The load of a topic. Skew is the heaviest partition by the mean of all.

    `keys` counts a key once for each partition that has it. `splits` are of the hot keys, or of the
    heaviest one if none is hot (`split_keys`).
    """

    rows: int
    size_bytes: int
    null_keys: int
    keys: int
    threshold: float
    row_skew: float
    byte_skew: float
    partitions: tuple[PartitionLoad, ...]
    heaviest: tuple[HeavyKey, ...]
    split_keys: tuple[bytes, ...]
    splits: tuple[Split, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "bytes": self.size_bytes,
            "null_keys": self.null_keys,
            "keys": self.keys,
            "threshold": self.threshold,
            "row_skew": round(self.row_skew, 4),
            "byte_skew": round(self.byte_skew, 4),
            "partitions": [
                {
                    "partition": each.partition,
                    "rows": each.rows,
                    "row_share": round(each.row_share, 6),
                    "bytes": each.size_bytes,
                    "byte_share": round(each.byte_share, 6),
                    "keys": each.keys,
                    "null_keys": each.null_keys,
                }
                for each in self.partitions
            ],
            "heaviest": [
                {
                    **key_json(each.key),
                    "rows": each.rows,
                    "row_share": round(each.row_share, 6),
                    "bytes": each.size_bytes,
                    "partitions": list(each.partitions),
                    "hot": each.is_hot,
                }
                for each in self.heaviest
            ],
            "split_keys": [key_json(each) for each in self.split_keys],
            "splits": [
                {
                    "ways": each.ways,
                    "row_skew": round(each.row_skew, 4),
                    "byte_skew": round(each.byte_skew, 4),
                    "rows": list(each.rows),
                }
                for each in self.splits
            ],
        }


def hot_keys(
    rows: DataFrame,
    *,
    partition_count: int | None = None,
    top: int = TOP,
    threshold: float = THRESHOLD,
    ways: Sequence[int] = WAYS,
) -> HotKeysReport:
    """The load of one topic's partitions and keys, counted exactly.

    The rows have the columns key, value and partition. `partition_count` is that of the topic, so
    that empty ones count; `threshold` is the share from which on HotKeySplitting takes a key for
    hot. The rows are read once.
    """
    by_key = (
        rows.groupBy("partition", "key")
        .agg(F.count("*").alias("rows"), F.sum(record_bytes()).alias("size_bytes"))
        .persist()
    )
    try:
        sums = _sums(by_key)
        heaviest = _heaviest(by_key, top)
    finally:
        by_key.unpersist()
    return _report(sums, heaviest, partition_count, threshold, ways)


def key_text(key: bytes) -> str:
    """A key as a person reads it: text where it is text, else its bytes in hexadecimal."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return text if text.isprintable() and text else f"0x{key.hex()}"


def key_json(key: bytes) -> dict[str, str]:
    """A key for programs: as text, or in hexadecimal with another name."""
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_hex": key.hex()}


def _sums(by_key: DataFrame) -> list[Any]:
    without_key = F.when(F.col("key").isNull(), F.col("rows")).otherwise(0)
    return (
        by_key.groupBy("partition")
        .agg(
            F.sum("rows").alias("rows"),
            F.sum("size_bytes").alias("size_bytes"),
            F.count("key").alias("keys"),
            F.sum(without_key).alias("null_keys"),
        )
        .collect()
    )


def _heaviest(by_key: DataFrame, top: int) -> list[Any]:
    places = F.collect_list(F.struct("partition", "rows", "size_bytes"))
    return (
        by_key.where(F.col("key").isNotNull())
        .groupBy("key")
        .agg(F.sum("rows").alias("total"), places.alias("places"))
        .orderBy(F.col("total").desc(), "key")
        .limit(top)
        .collect()
    )


def _report(
    sums: list[Any],
    heaviest: list[Any],
    partition_count: int | None,
    threshold: float,
    ways: Sequence[int],
) -> HotKeysReport:
    found = {row.partition: row for row in sums}
    count = max(partition_count or 1, max(found, default=0) + 1)
    rows = [found[at].rows if at in found else 0 for at in range(count)]
    sizes = [found[at].size_bytes if at in found else 0 for at in range(count)]
    null_keys = sum(row.null_keys for row in sums)
    keyed = sum(rows) - null_keys
    keys = tuple(_heavy_key(row, sum(rows), keyed, threshold) for row in heaviest)
    split = [row for row, key in zip(heaviest, keys, strict=True) if key.is_hot] or heaviest[:1]
    return HotKeysReport(
        rows=sum(rows),
        size_bytes=sum(sizes),
        null_keys=null_keys,
        keys=sum(row.keys for row in sums),
        threshold=threshold,
        row_skew=skew(rows),
        byte_skew=skew(sizes),
        partitions=tuple(
            PartitionLoad(
                partition=at,
                rows=rows[at],
                row_share=_share(rows[at], sum(rows)),
                size_bytes=sizes[at],
                byte_share=_share(sizes[at], sum(sizes)),
                keys=found[at].keys if at in found else 0,
                null_keys=found[at].null_keys if at in found else 0,
            )
            for at in range(count)
        ),
        heaviest=keys,
        split_keys=tuple(bytes(row.key) for row in split),
        splits=tuple(
            _split(rows, sizes, split, each)
            for each in sorted({min(each, count) for each in ways})
            if split and each > 1
        ),
    )


def _heavy_key(row: Any, rows: int, keyed: int, threshold: float) -> HeavyKey:
    key_share = _share(row.total, keyed)
    return HeavyKey(
        key=bytes(row.key),
        rows=row.total,
        row_share=_share(row.total, rows),
        key_share=key_share,
        size_bytes=sum(place.size_bytes for place in row.places),
        partitions=tuple(sorted(place.partition for place in row.places)),
        is_hot=key_share > threshold,
    )


def _split(rows: list[int], sizes: list[int], keys: list[Any], ways: int) -> Split:
    after = [
        split_load(
            loads,
            [
                KeyLoad(bytes(row.key), {place.partition: place[name] for place in row.places})
                for row in keys
            ],
            ways,
        )
        for name, loads in (("rows", rows), ("size_bytes", sizes))
    ]
    return Split(ways, skew(after[0]), skew(after[1]), tuple(after[0]))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
