"""What is read from Spark's reports on micro-batches."""

import json

from tidelog.spark.pipeline.run.progress import Progress, Totals, read_progress

_REPORT = {
    "batchId": 7,
    "batchDuration": 120,
    "durationMs": {"addBatch": 90, "triggerExecution": 120},
    "numInputRows": 30,
    "timestamp": "2026-01-02T03:04:05.678Z",
    "eventTime": {"watermark": "2026-01-02T03:00:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 5, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 1, "memoryUsedBytes": 24, "numRowsDroppedByWatermark": 1},
    ],
    "sources": [
        {
            "endOffset": {"orders": {"0": 10, "1": 5}},
            "latestOffset": {"orders": {"0": 12, "1": 5, "2": 4}},
        },
        {"endOffset": json.dumps({"payments": {"0": 3}}), "latestOffset": '{"payments": {"0": 3}}'},
        {"endOffset": 4, "latestOffset": 9},
        {"endOffset": None, "latestOffset": "not json"},
    ],
}


def _progress(rows: int) -> Progress:
    return read_progress({"batchId": 1, "numInputRows": rows, "durationMs": {"addBatch": 1}})


def test_a_report_gives_rows_state_and_the_lag_by_topic() -> None:
    assert read_progress(_REPORT) == Progress(
        batch_id=7,
        has_batch=True,
        rows=30,
        batch_ms=120,
        state_rows=6,
        state_bytes=1024,
        late_rows=3,
        lag={"orders": 6, "payments": 0},
        watermark="2026-01-02T03:00:00.000Z",
        timestamp="2026-01-02T03:04:05.678Z",
    )


def test_a_topic_that_two_sources_read_has_the_longer_lag() -> None:
    sources = [
        {"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 9}}},
        {"endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 9}}},
    ]
    assert read_progress({"batchId": 0, "sources": sources}).lag == {"t": 8}


def test_totals_add_up_and_the_rate_comes_down_when_nothing_happens() -> None:
    totals = Totals()
    assert totals.rows_per_s(5_000, 0) == 0
    totals.add(_progress(100), 6_000)
    totals.add(_progress(200), 9_000)
    assert (totals.rows, totals.batches) == (300, 2)
    assert totals.rows_per_s(10_000, 0) == 30
    assert totals.rows_per_s(17_000, 0) == 20
    assert totals.rows_per_s(60_000, 0) == 0


def test_a_report_of_an_idle_query_tells_the_lag_and_is_no_batch() -> None:
    totals = Totals()
    totals.add(_progress(100), 500)
    idle = read_progress({**_REPORT, "durationMs": {"latestOffset": 1, "triggerExecution": 1}})
    totals.add(idle, 600)
    assert (totals.batches, totals.rows, totals.late_rows) == (1, 100, 0)
    assert totals.last == _progress(100)
    assert totals.newest is not None
    assert totals.newest.lag == {"orders": 6, "payments": 0}


def test_the_rate_of_a_young_query_is_over_its_age() -> None:
    totals = Totals()
    totals.add(_progress(100), 500)
    assert totals.rows_per_s(1_000, 0) == 100
