"""Running a pipeline: the loop between Spark's queries and the supervisor's decisions."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidelog.spark.pipeline.file.graph import Graph
from tidelog.spark.pipeline.file.model import PipelineSpec
from tidelog.spark.pipeline.run.events import (
    BatchDone,
    Draining,
    Event,
    QueryEnded,
    QueryFailed,
    QueryStarted,
    RowsShown,
    StatusNotWritten,
)
from tidelog.spark.pipeline.run.failure import (
    failure_reason,
    for_people,
    is_connection_lost,
    is_hopeless,
)
from tidelog.spark.pipeline.run.frames import ViewError, make_frame
from tidelog.spark.pipeline.run.last_batch import LastBatch, begin_last_batch
from tidelog.spark.pipeline.run.metrics import render
from tidelog.spark.pipeline.run.progress import Progress, Totals, read_progress
from tidelog.spark.pipeline.run.queries import start_query
from tidelog.spark.pipeline.run.state_dir import StateDir
from tidelog.spark.pipeline.run.status import PipelineStatus, QueryStatus
from tidelog.spark.pipeline.run.supervisor import (
    Finish,
    Observed,
    Phase,
    Query,
    QueryState,
    Start,
    Stop,
    Supervisor,
)

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_TICK_S = 0.2
_PUBLISH_INTERVAL_MS = 1_000

OnEvent = Callable[[Event], None]
OnStatus = Callable[[PipelineStatus], None]


@dataclass(slots=True)
class _Sink:
    """One sink's query, over all its restarts."""

    totals: Totals = field(default_factory=Totals)
    query: StreamingQuery | None = None
    start_error: Exception | None = None
    batches: int = 0  # of the query as it runs now
    last_seen: Progress | None = None
    last_batch: LastBatch | None = None


class StopRequests:
    """How often somebody asked for the end: once to drain, again to stop at once.

    Safe to call in a signal handler and from other threads, also before there is a runner.
    """

    def __init__(self) -> None:
        self.count = 0
        self.wake = threading.Event()

    def add(self) -> None:
        self.count += 1
        self.wake.set()


class Runner:
    """Runs all queries of a pipeline in one session until they end, fail or are stopped."""

    def __init__(
        self,
        spec: PipelineSpec,
        spark: SparkSession,
        *,
        stop_requests: StopRequests,
        state_dir: StateDir | None = None,
        metrics_url: str | None = None,
        on_event: OnEvent = lambda event: None,
        on_status: OnStatus = lambda status: None,
    ) -> None:
        self._spec = spec
        self._spark = spark
        self._graph = Graph(spec)
        self._state_dir = state_dir
        self._metrics_url = metrics_url
        self._on_event = on_event
        self._on_status = on_status
        self._sinks = {name: _Sink() for name in spec.sinks}
        self._supervisor = Supervisor(list(spec.sinks), spec.restart, spec.drain_timeout_ms)
        self._stop_requests = stop_requests
        self._stops_seen = 0
        self._master = spark.conf.get("spark.master", None)
        self._started_at = _now()
        self._started_ms = _clock_ms()
        self._published_ms = 0
        self._write_problem: str | None = None
        self.status = self._make_status()

    def run(self) -> PipelineStatus:
        """Run to the end; the last status says how it ended."""
        self._publish()
        try:
            while not self._supervisor.phase.is_over:
                self._tick()
                if not self._supervisor.phase.is_over:
                    self._stop_requests.wake.wait(_TICK_S)
                    self._stop_requests.wake.clear()
        except Exception as error:
            self._supervisor.phase = Phase.FAILED
            if not is_connection_lost(error):
                self._supervisor.reason = repr(error)
                raise
            self._supervisor.reason = f"the connection to Spark is lost: {error}"
        finally:
            try:
                self._stop_all()
            finally:
                self._publish()
        return self.status

    def _tick(self) -> None:
        supervisor, now_ms = self._supervisor, _clock_ms()
        phase = supervisor.phase
        while self._stops_seen < self._stop_requests.count:
            self._stops_seen += 1
            supervisor.request_stop(now_ms)
        before = {name: query.state for name, query in supervisor.queries.items()}
        has_progress = False
        observed = {}
        for name, sink in self._sinks.items():
            if before[name] in (QueryState.RUNNING, QueryState.STOPPING):
                count = sink.totals.batches
                observed[name] = self._observe(name, sink, now_ms)
                has_progress |= sink.totals.batches > count
        actions = supervisor.tick(now_ms, observed)
        if phase is Phase.RUNNING and supervisor.phase is Phase.DRAINING:
            self._on_event(Draining())
        self._tell(before, observed, now_ms)
        for action in actions:
            match action:
                case Start():
                    self._start(action.query)
                case Finish():
                    self._finish(action.query)
                case Stop():
                    self._stop(action.query)
        is_changed = before != {name: query.state for name, query in supervisor.queries.items()}
        if has_progress or is_changed or now_ms - self._published_ms >= _PUBLISH_INTERVAL_MS:
            self._publish()

    def _tell(
        self, before: dict[str, QueryState], observed: dict[str, Observed], now_ms: int
    ) -> None:
        for name, query in self._supervisor.queries.items():
            seen = observed.get(name)
            if query.state is before[name] or seen is None or seen.is_active:
                continue
            if seen.error is not None and query.state is not QueryState.STOPPED:
                is_waiting = query.state is QueryState.WAITING
                delay_ms = query.start_at_ms - now_ms if is_waiting else None
                self._on_event(QueryFailed(name, seen.error, delay_ms))
            else:
                self._on_event(QueryEnded(name, query.state.value))

    def _start(self, name: str) -> None:
        sink, spec = self._sinks[name], self._spec.sinks[name]
        sink.query, sink.start_error, sink.batches, sink.last_seen = None, None, 0, None
        sink.totals.newest = None
        view = self._graph.view_of(spec)
        assert view is not None, "a file without errors names only views that exist"
        try:
            frame = make_frame(self._graph, self._spark, view, owned=self._graph.owned(spec))
            sink.query = start_query(self._spec, spec, frame, self._spark, self._show)
        except Exception as error:  # noqa: BLE001  Spark, py4j and a user's function raise anything
            sink.start_error = error
            return
        self._on_event(QueryStarted(name))

    def _finish(self, name: str) -> None:
        sink = self._sinks[name]
        if sink.query is not None:
            sink.last_batch = begin_last_batch(sink.query)

    def _stop(self, name: str) -> None:
        query = self._sinks[name].query
        if query is not None:
            query.stop()

    def _stop_all(self) -> None:
        """After an unexpected end nothing of ours may go on in a session that others use."""
        for sink in self._sinks.values():
            try:
                if sink.query is not None and sink.query.isActive:
                    sink.query.stop()
            except Exception as error:
                if not is_connection_lost(error):
                    raise
                return

    def _show(self, sink: str, batch_id: int, columns: list[str], rows: list[Row]) -> None:
        self._on_event(RowsShown(sink, batch_id, tuple(columns), tuple(tuple(row) for row in rows)))

    def _observe(self, name: str, sink: _Sink, now_ms: int) -> Observed:
        if sink.start_error is not None:
            return _not_started(sink.start_error)
        query = sink.query
        assert query is not None
        # In this order: what a query reports before it ends is seen with its end.
        is_active = query.isActive if sink.last_batch is None else not sink.last_batch.is_over()
        for progress in self._new_progress(query, sink):
            sink.totals.add(progress, now_ms)
            if progress.has_batch:
                sink.batches += 1
                self._on_event(BatchDone(name, progress))
        if is_active:
            status = query.status
            is_idle = not status["isTriggerActive"] or status["message"].startswith("Waiting")
            return Observed(is_active=True, is_idle=is_idle, batches=sink.batches)
        failure = query.exception()
        if failure is None:
            return Observed(is_active=False, batches=sink.batches)
        reason = failure_reason(str(failure))
        return Observed(
            is_active=False,
            batches=sink.batches,
            error=for_people(reason),
            is_hopeless=is_hopeless(failure, reason, at_start=False),
        )

    def _new_progress(self, query: StreamingQuery, sink: _Sink) -> list[Progress]:
        last, seen = _report(query.lastProgress), sink.last_seen
        if last is None or last == seen:
            return []
        sink.last_seen = last
        # A query that is idle reports with the number of the batch that comes next.
        next_id = None if seen is None else seen.batch_id + seen.has_batch
        if last.batch_id == next_id:
            return [last]
        # More than one batch since the last look, or the first look: Spark keeps the last hundred.
        recent = [each for each in map(_report, query.recentProgress) if each is not None]
        return recent[recent.index(seen) + 1 :] if seen in recent else recent

    def _publish(self) -> None:
        self.status = self._make_status()
        self._published_ms = _clock_ms()
        if self._state_dir is not None:
            self._write_status(self._state_dir)
        self._on_status(self.status)

    def _write_status(self, state_dir: StateDir) -> None:
        problem = None
        try:
            state_dir.write(self.status, render(self.status))
        except OSError as error:
            problem = str(error)
        if problem is not None and problem != self._write_problem:
            self._on_event(StatusNotWritten(problem))
        self._write_problem = problem

    def _make_status(self) -> PipelineStatus:
        return PipelineStatus(
            name=self._spec.name,
            file=str(self._spec.file),
            pid=os.getpid(),
            phase=self._supervisor.phase.value,
            started_at=self._started_at,
            updated_at=_now(),
            queries=[
                self._query_status(name, query) for name, query in self._supervisor.queries.items()
            ],
            reason=self._supervisor.reason,
            master=self._master,
            metrics_url=self._metrics_url,
        )

    def _query_status(self, name: str, query: Query) -> QueryStatus:
        totals, sink = self._sinks[name].totals, self._spec.sinks[name]
        last, newest = totals.last, totals.newest
        # Records go on to arrive while it does not read: how many is not known.
        if query.state in (QueryState.WAITING, QueryState.FAILED):
            newest = None
        status = QueryStatus(
            name=name,
            kind=sink.kind,
            reads=sink.reads,
            state=query.state.value,
            batches=totals.batches,
            rows=totals.rows,
            rows_per_s=round(totals.rows_per_s(_clock_ms(), self._started_ms), 1),
            restarts=query.restarts.count,
            last_error=query.last_error,
            lag=dict(newest.lag) if newest is not None else {},
            watermark=newest.watermark if newest is not None else None,
        )
        if last is None:
            return status
        return replace(
            status,
            batch_id=last.batch_id,
            batch_ms=last.batch_ms,
            state_rows=last.state_rows,
            state_bytes=last.state_bytes,
            late_rows=totals.late_rows,
            watermark=status.watermark or last.watermark,
            last_batch_at=last.timestamp,
        )


def _not_started(error: Exception) -> Observed:
    where = ""
    cause: BaseException = error
    if isinstance(error, ViewError):
        where, cause = f"view {error.view}: ", error.cause
    reason = failure_reason(str(cause)) if str(cause) else type(cause).__name__
    hopeless = is_hopeless(cause, reason, at_start=True)
    return Observed(is_active=False, error=f"{where}{for_people(reason)}", is_hopeless=hopeless)


def _report(report: object) -> Progress | None:
    """Spark's progress, in classic sessions and over Connect alike."""
    if report is None:
        return None
    text = getattr(report, "json", None)
    return read_progress(json.loads(text) if isinstance(text, str) else report)  # type: ignore[arg-type]


def _clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
