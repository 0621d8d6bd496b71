"""The offsets of a topic as runs without a gap.

A task sees its rows in the order in which they were read and sums them up as runs: offsets that
follow each other, with the bytes, checksum and times of their records. What is left of millions of
rows is a few numbers per task, or two per gap.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

Int64s = npt.NDArray[np.int64]

_NUMBERS = (
    "first",
    "last",
    "size_bytes",
    "checksum",
    "time_min_us",
    "time_max_us",
    "order_violations",
    "times_back",
)
_FIRST, _LAST, _SIZE, _CHECKSUM, _TIME_MIN, _TIME_MAX, _ORDER, _BACK = range(len(_NUMBERS))

RUN_COLUMNS = "topic string, partition int, " + ", ".join(f"{name} long" for name in _NUMBERS)
_RUN_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        *((name, pa.int64()) for name in _NUMBERS),
    ]
)

_NO_TIME_MIN = np.iinfo(np.int64).max
_NO_TIME_MAX = np.iinfo(np.int64).min

_Place = tuple[str | None, str, int]


def offset_runs(rows: DataFrame, origin: Column | None = None) -> DataFrame:
    """The runs of a DataFrame with the columns of the source, in RUN_COLUMNS.

    Order is looked at within what one task reads, and within one `origin` if there is such a
    column: files of a lake have no order among themselves.
    """
    return rows.select(
        (F.lit(None) if origin is None else origin).cast("string").alias("origin"),
        "topic",
        "partition",
        "offset",
        F.unix_micros("timestamp").alias("time_us"),
        record_bytes().alias("size_bytes"),
        record_hash().alias("hash"),
    ).mapInArrow(_runs_of_task, RUN_COLUMNS)


def record_bytes() -> Column:
    """The bytes of a record's key and value."""
    key, value = F.octet_length("key"), F.octet_length("value")
    return (F.coalesce(key, F.lit(0)) + F.coalesce(value, F.lit(0))).cast("long")


def record_hash() -> Column:
    """A number for a record by its key, value and offset; null differs from empty."""
    return F.xxhash64(
        F.isnull("key"), "key", F.isnull("value"), "value", F.col("offset").cast("long")
    )


def whole_record_hash() -> Column:
    """A number for all that a record has, with its timestamp and headers."""

    def named(header: Column) -> Column:
        return F.struct(header["key"], F.isnull(header["value"]), header["value"])

    headers = F.col("headers")
    return F.xxhash64(
        record_hash(),
        F.isnull("timestamp"),
        F.unix_micros("timestamp"),
        F.col("timestampType"),
        F.isnull(headers),
        F.size(headers),
        F.transform(headers, named),
    )


@dataclass(slots=True)
class _Progress:
    """The run that may go on, as a table of one row, and the time of its last record."""

    run: Int64s
    time_us: int | None


class RunCollector:
    """Finds the runs in batches of rows, which come in the order of reading."""

    def __init__(self) -> None:
        self._progress: dict[_Place, _Progress] = {}

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The runs that ended within the batch, whose columns are those that `offset_runs` asks."""
        offsets, times, sizes, hashes = (
            batch.column(name).fill_null(0).to_numpy()
            for name in ("offset", "time_us", "size_bytes", "hash")
        )
        has_time = batch.column("time_us").is_valid().to_numpy(zero_copy_only=False)
        for place, rows in _places(batch):
            runs = _runs(offsets[rows], times[rows], has_time[rows], sizes[rows], hashes[rows])
            seen = times[rows][has_time[rows]]
            ended = self._go_on(place, runs, seen)
            if len(ended):
                yield _batch(place, ended)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The runs that were open at the end."""
        for place, progress in self._progress.items():
            yield _batch(place, progress.run)
        self._progress.clear()

    def _go_on(self, place: _Place, runs: Int64s, times: Int64s) -> Int64s:
        """Put new runs behind the one that is open; returns all but the last."""
        before = self._progress.get(place)
        last_time = None if before is None else before.time_us
        if len(times):
            if last_time is not None and int(times[0]) < last_time:
                runs[0, _BACK] += 1
            last_time = int(times[-1])
        if before is not None:
            last, first = int(before.run[0, _LAST]), int(runs[0, _FIRST])
            if first <= last:
                runs[0, _ORDER] += 1
            if first == last + 1:
                runs[:1] = _joined(before.run, runs[:1])
            else:
                runs = np.concatenate((before.run, runs))
        self._progress[place] = _Progress(runs[-1:].copy(), last_time)
        return runs[:-1]


def _runs(
    offsets: Int64s,
    times: Int64s,
    has_time: npt.NDArray[np.bool_],
    sizes: Int64s,
    hashes: Int64s,
) -> Int64s:
    """The runs of rows of one partition, one a line, with the columns of _NUMBERS."""
    steps = np.diff(offsets)
    starts = np.concatenate(([0], np.flatnonzero(steps != 1) + 1))
    runs = np.zeros((len(starts), len(_NUMBERS)), np.int64)
    runs[:, _FIRST] = offsets[starts]
    runs[:, _LAST] = offsets[np.concatenate((starts[1:], [len(offsets)])) - 1]
    runs[:, _SIZE] = np.add.reduceat(sizes, starts)
    # Sums of hashes go round at 2^64.
    runs[:, _CHECKSUM] = np.add.reduceat(hashes, starts)
    runs[:, _TIME_MIN] = np.minimum.reduceat(np.where(has_time, times, _NO_TIME_MIN), starts)
    runs[:, _TIME_MAX] = np.maximum.reduceat(np.where(has_time, times, _NO_TIME_MAX), starts)
    # In which run these are counted does not matter, they are summed up.
    runs[0, _ORDER] = (steps <= 0).sum()
    runs[0, _BACK] = (np.diff(times[has_time]) < 0).sum()
    return runs


def _joined(run: Int64s, following: Int64s) -> Int64s:
    joined = run + following
    joined[:, _FIRST] = run[:, _FIRST]
    joined[:, _LAST] = following[:, _LAST]
    joined[:, _TIME_MIN] = np.minimum(run[:, _TIME_MIN], following[:, _TIME_MIN])
    joined[:, _TIME_MAX] = np.maximum(run[:, _TIME_MAX], following[:, _TIME_MAX])
    return joined


def _places(batch: pa.RecordBatch) -> Iterator[tuple[_Place, slice | Int64s]]:
    """The rows of each partition and origin, in their order."""
    codes = np.zeros(batch.num_rows, np.int64)
    names: list[list[object]] = []
    for name in ("origin", "topic", "partition"):
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        names.append(encoded.dictionary.to_pylist())
        codes = codes * len(names[-1]) + encoded.indices.to_numpy()
    for code in np.unique(codes):
        rest = int(code)
        parts = []
        for each in reversed(names):
            rest, index = divmod(rest, len(each))
            parts.append(each[index])
        partition, topic, origin = parts
        assert isinstance(topic, str)
        assert isinstance(partition, int)
        assert origin is None or isinstance(origin, str)
        is_only = all(len(each) == 1 for each in names)
        yield (origin, topic, partition), slice(None) if is_only else np.flatnonzero(codes == code)


def _batch(place: _Place, runs: Int64s) -> pa.RecordBatch:
    _, topic, partition = place
    columns = [
        pa.repeat(pa.scalar(topic), len(runs)),
        pa.repeat(pa.scalar(partition, pa.int32()), len(runs)),
    ]
    without_time = {_TIME_MIN: _NO_TIME_MIN, _TIME_MAX: _NO_TIME_MAX}
    for at in range(len(_NUMBERS)):
        numbers = np.ascontiguousarray(runs[:, at])
        mask = numbers == without_time[at] if at in without_time else None
        columns.append(pa.array(numbers, mask=mask))
    return pa.RecordBatch.from_arrays(columns, schema=_RUN_SCHEMA)


def _runs_of_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    collector = RunCollector()
    for batch in batches:
        if batch.num_rows:
            yield from collector.add(batch)
    yield from collector.finish()
