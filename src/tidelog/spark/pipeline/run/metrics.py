"""A pipeline's status for Prometheus: as text, and over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tidelog.spark.errors import SparkError
from tidelog.spark.pipeline.run.status import PipelineStatus, QueryStatus

_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# name, type, help, value of a query (None: no sample)
_QUERY_METRICS: tuple[tuple[str, str, str, Callable[[QueryStatus], float | None]], ...] = (
    ("up", "gauge", "1 while the query runs.", lambda each: each.state == "running"),
    ("rows_total", "counter", "Rows read since the start.", lambda each: each.rows),
    ("batches_total", "counter", "Micro-batches since the start.", lambda each: each.batches),
    ("restarts_total", "counter", "Restarts after failures.", lambda each: each.restarts),
    ("rows_per_second", "gauge", "Rows read, last 10 s.", lambda each: each.rows_per_s),
    (
        "batch_duration_seconds",
        "gauge",
        "Duration of the last micro-batch.",
        lambda each: None if each.batch_ms is None else each.batch_ms / 1000,
    ),
    ("last_batch_id", "gauge", "Number of the last micro-batch.", lambda each: each.batch_id),
    ("state_rows", "gauge", "Rows in the state store.", lambda each: each.state_rows),
    ("state_bytes", "gauge", "Memory of the state store.", lambda each: each.state_bytes),
    (
        "late_rows_total",
        "counter",
        "Rows dropped because they came after the watermark.",
        lambda each: each.late_rows,
    ),
    (
        "watermark_timestamp_seconds",
        "gauge",
        "The event-time watermark.",
        lambda each: _seconds(each.watermark),
    ),
    (
        "last_batch_timestamp_seconds",
        "gauge",
        "When the last micro-batch began.",
        lambda each: _seconds(each.last_batch_at),
    ),
)


def render(status: PipelineStatus) -> str:
    """The status in Prometheus' text format."""
    pipeline = {"pipeline": status.name}
    lines = [
        *_metric("tidelog_pipeline_up", "gauge", "1 while the pipeline runs."),
        _sample("tidelog_pipeline_up", pipeline, status.phase in ("running", "draining")),
        *_metric("tidelog_pipeline_start_timestamp_seconds", "gauge", "When it was started."),
        _sample(
            "tidelog_pipeline_start_timestamp_seconds", pipeline, _seconds(status.started_at) or 0
        ),
        *_metric("tidelog_pipeline_updated_timestamp_seconds", "gauge", "When this was written."),
        _sample(
            "tidelog_pipeline_updated_timestamp_seconds", pipeline, _seconds(status.updated_at) or 0
        ),
    ]
    for short, kind, words, value_of in _QUERY_METRICS:
        name = f"tidelog_pipeline_query_{short}"
        samples = [
            _sample(name, {**pipeline, "query": query.name}, value)
            for query in status.queries
            if (value := value_of(query)) is not None
        ]
        if samples:
            lines += [*_metric(name, kind, words), *samples]
    lags = [
        _sample(
            "tidelog_pipeline_query_lag_records",
            {**pipeline, "query": query.name, "topic": topic},
            behind,
        )
        for query in status.queries
        for topic, behind in sorted(query.lag.items())
    ]
    if lags:
        words = "Records of a topic that wait to be read."
        lines += [*_metric("tidelog_pipeline_query_lag_records", "gauge", words), *lags]
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, words: str) -> Iterable[str]:
    return f"# HELP {name} {words}", f"# TYPE {name} {kind}"


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    number = f"{float(value):.17g}" if isinstance(value, float) else str(int(value))
    return f"{name}{{{inner}}} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _seconds(moment: str | None) -> float | None:
    if not moment:
        return None
    seconds = datetime.fromisoformat(moment).timestamp()
    # Spark's watermark stands at the epoch until there is one.
    return seconds if seconds > 0 else None


class MetricsServer:
    """Serves `/metrics` from a thread until it is closed. Port 0 takes a free one."""

    def __init__(self, port: int, text: Callable[[], str], *, host: str = "127.0.0.1") -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_known = self.path.split("?")[0] in ("/", "/metrics")
                body = text().encode() if is_known else b"the metrics are at /metrics\n"
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """A scrape is not worth a line."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise SparkError(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
        self.url = f"http://{host}:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="tidelog-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
