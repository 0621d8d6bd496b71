"""Runs of offsets, against a count row by row."""

from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.jobs.offset_runs import RunCollector

_SCHEMA = pa.schema(
    [
        ("origin", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("time_us", pa.int64()),
        ("size_bytes", pa.int64()),
        ("hash", pa.int64()),
    ]
)
_MASK = (1 << 64) - 1

Row = tuple[str | None, str, int, int, int | None, int, int]


@dataclass
class _Sum:
    offsets: list[int]
    size_bytes: int = 0
    checksum: int = 0
    times: list[int] | None = None
    order_violations: int = 0
    times_back: int = 0


def _counted(rows: list[Row]) -> dict[tuple[str, int], _Sum]:
    """What the runs must add up to, row by row."""
    sums: dict[tuple[str, int], _Sum] = defaultdict(lambda: _Sum([], times=[]))
    last: dict[tuple[str | None, str, int], tuple[int, int | None]] = {}
    for origin, topic, partition, offset, time_us, size_bytes, hashed in rows:
        each = sums[topic, partition]
        before = last.get((origin, topic, partition))
        last_time = None if before is None else before[1]
        if before is not None and offset <= before[0]:
            each.order_violations += 1
        if time_us is not None:
            if last_time is not None and time_us < last_time:
                each.times_back += 1
            last_time = time_us
            assert each.times is not None
            each.times.append(time_us)
        last[origin, topic, partition] = (offset, last_time)
        each.offsets.append(offset)
        each.size_bytes += size_bytes
        each.checksum = each.checksum + hashed & _MASK
    return sums


def _summed(runs: list[pa.RecordBatch]) -> dict[tuple[str, int], _Sum]:
    sums: dict[tuple[str, int], _Sum] = defaultdict(lambda: _Sum([], times=[]))
    for batch in runs:
        for run in batch.to_pylist():
            each = sums[run["topic"], run["partition"]]
            each.offsets += range(run["first"], run["last"] + 1)
            each.size_bytes += run["size_bytes"]
            each.checksum = each.checksum + run["checksum"] & _MASK
            assert each.times is not None
            if run["time_min_us"] is not None:
                each.times += [run["time_min_us"], run["time_max_us"]]
            each.order_violations += run["order_violations"]
            each.times_back += run["times_back"]
    return sums


def _collect(batches: list[list[Row]]) -> list[pa.RecordBatch]:
    collector = RunCollector()
    runs: list[pa.RecordBatch] = []
    for rows in batches:
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)
        ]
        runs += collector.add(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
    return [*runs, *collector.finish()]


_rows = st.tuples(
    st.sampled_from([None, "file"]),
    st.sampled_from(["a", "b"]),
    st.integers(0, 1),
    st.integers(0, 6),
    st.none() | st.integers(0, 5),
    st.integers(0, 100),
    st.integers(-(2**63), 2**63 - 1),
)


@given(st.lists(st.lists(_rows, min_size=1, max_size=12), max_size=4))
def test_runs_add_up_to_the_rows(batches: list[list[Row]]) -> None:
    expected = _counted([row for rows in batches for row in rows])
    found = _summed(_collect(batches))
    assert found.keys() == expected.keys()
    for place, each in expected.items():
        run = found[place]
        assert sorted(run.offsets) == sorted(each.offsets)
        assert (run.size_bytes, run.checksum) == (each.size_bytes, each.checksum)
        assert (run.order_violations, run.times_back) == (each.order_violations, each.times_back)
        assert bool(run.times) == bool(each.times)
        if run.times and each.times:
            assert (min(run.times), max(run.times)) == (min(each.times), max(each.times))


def test_a_partition_without_gaps_is_one_run_over_all_batches() -> None:
    batches: list[list[Row]] = [
        [(None, "t", 0, offset, offset, 1, 2) for offset in range(at, at + 10)]
        for at in range(0, 50, 10)
    ]
    (run,) = [row for batch in _collect(batches) for row in batch.to_pylist()]
    assert (run["first"], run["last"], run["size_bytes"], run["checksum"]) == (0, 49, 50, 100)


def test_a_gap_ends_a_run() -> None:
    rows: list[Row] = [(None, "t", 0, offset, None, 1, 0) for offset in (1, 2, 5, 6, 9)]
    runs = [row for batch in _collect([rows[:3], rows[3:]]) for row in batch.to_pylist()]
    assert sorted((run["first"], run["last"]) for run in runs) == [(1, 2), (5, 6), (9, 9)]
    assert {run["time_min_us"] for run in runs} == {None}
