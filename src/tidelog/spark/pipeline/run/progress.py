"""What Spark tells after a micro-batch, and what a pipeline's status makes of it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_RATE_WINDOW_MS = 10_000


@dataclass(frozen=True, slots=True)
class Progress:
    """One report of Spark: on a micro-batch, or from time to time that there is nothing to do."""

    batch_id: int  # without a batch that of the next one
    has_batch: bool
    rows: int
    batch_ms: int
    state_rows: int
    state_bytes: int
    late_rows: int  # dropped because they came after the watermark
    lag: Mapping[str, int]  # records behind the end, by topic
    watermark: str | None
    timestamp: str  # when it began, ISO 8601


def read_progress(report: Mapping[str, Any]) -> Progress:
    """The parts we use of a StreamingQueryProgress in its JSON form."""
    states = report.get("stateOperators") or []
    lag: dict[str, int] = {}
    for source in report.get("sources") or []:
        for topic, behind in _lag(source.get("endOffset"), source.get("latestOffset")).items():
            lag[topic] = max(behind, lag.get(topic, 0))
    return Progress(
        batch_id=int(report["batchId"]),
        has_batch="addBatch" in (report.get("durationMs") or {}),
        rows=int(report.get("numInputRows") or 0),
        batch_ms=int(report.get("batchDuration") or 0),
        state_rows=sum(int(state.get("numRowsTotal") or 0) for state in states),
        state_bytes=sum(int(state.get("memoryUsedBytes") or 0) for state in states),
        late_rows=sum(int(state.get("numRowsDroppedByWatermark") or 0) for state in states),
        lag=lag,
        watermark=(report.get("eventTime") or {}).get("watermark"),
        timestamp=str(report.get("timestamp") or ""),
    )


def _lag(end: Any, latest: Any) -> dict[str, int]:
    """How far each topic's end offsets are behind; nothing for sources with other offsets."""
    ends, lasts = _offsets(end), _offsets(latest)
    return {
        topic: sum(
            max(0, last - ends.get(topic, {}).get(partition, 0))
            for partition, last in partitions.items()
        )
        for topic, partitions in lasts.items()
        if topic in ends
    }


def _offsets(given: Any) -> dict[str, dict[str, int]]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return {}
    if not isinstance(given, dict):
        return {}
    return {
        topic: partitions
        for topic, partitions in given.items()
        if isinstance(partitions, dict)
        and all(isinstance(offset, int) for offset in partitions.values())
    }


@dataclass(slots=True)
class Totals:
    """What one query has told since the pipeline started, over all its restarts."""

    rows: int = 0
    late_rows: int = 0
    batches: int = 0
    last: Progress | None = None  # the newest with a batch
    newest: Progress | None = None  # of the query as it runs now, with or without a batch
    _recent: deque[tuple[int, int]] = field(default_factory=deque)  # (when, rows)

    def add(self, progress: Progress, now_ms: int) -> None:
        self.newest = progress
        if not progress.has_batch:
            return
        self.rows += progress.rows
        self.late_rows += progress.late_rows
        self.batches += 1
        self.last = progress
        self._recent.append((now_ms, progress.rows))

    def rows_per_s(self, now_ms: int, since_ms: int) -> float:
        """Over the last seconds; a query that is idle comes down to 0."""
        while self._recent and self._recent[0][0] <= now_ms - _RATE_WINDOW_MS:
            self._recent.popleft()
        span_ms = min(_RATE_WINDOW_MS, max(1, now_ms - since_ms))
        return sum(rows for _, rows in self._recent) * 1000 / span_ms
