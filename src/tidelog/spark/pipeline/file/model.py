"""A pipeline as its file describes it: sources, steps, sinks, and how they run.

All values are final: variables are replaced, paths are absolute, durations are milliseconds, and
options have the names that Spark knows. Names of sources and steps are views that SQL can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tidelog.spark.pipeline.file.sql_query import SqlQuery


class TriggerKind(StrEnum):
    PROCESSING_TIME = "processing-time"
    AVAILABLE_NOW = "available-now"
    ONCE = "once"


@dataclass(frozen=True, slots=True)
class Trigger:
    """When micro-batches begin; an interval of 0 starts the next as soon as there is data."""

    kind: TriggerKind = TriggerKind.PROCESSING_TIME
    interval_ms: int = 0


class OutputMode(StrEnum):
    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often a failing query is started again.

    The n-th failure in a row waits `backoff_ms * 2^(n-1)`, at most `backoff_ms_max`. More than
    `restarts_max` failures within `window_ms` end the pipeline.
    """

    restarts_max: int = 5
    window_ms: int = 600_000
    backoff_ms: int = 1_000
    backoff_ms_max: int = 60_000


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class TopicSource:
    name: str
    options: Mapping[str, str]  # of format("tidelog")
    topics: tuple[str, ...]  # empty when a pattern or an assignment names them
    is_streaming: bool = True
    watermark: Watermark | None = None
    kind: str = field(default="topic", init=False)

    @property
    def dead_letter_topic(self) -> str | None:
        return self.options.get("deadLetterTopic")


@dataclass(frozen=True, slots=True)
class FileSource:
    name: str
    kind: str  # parquet, json, csv, orc, text
    path: str
    schema: str | None
    options: Mapping[str, str]
    is_streaming: bool = False
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class DeltaSource:
    """A Delta table as it is when the pipeline starts."""

    name: str
    path: str
    is_streaming: bool = field(default=False, init=False)
    watermark: Watermark | None = field(default=None, init=False)
    kind: str = field(default="delta", init=False)


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table of Spark's catalog."""

    name: str
    table: str
    is_streaming: bool = False
    watermark: Watermark | None = None
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True)
class SqlSource:
    """A static relation from SQL that reads no view, such as a range or VALUES."""

    name: str
    sql: SqlText
    is_streaming: bool = field(default=False, init=False)
    watermark: Watermark | None = field(default=None, init=False)
    kind: str = field(default="sql", init=False)


@dataclass(frozen=True, slots=True)
class RateSource:
    """Spark's generator of (timestamp, value) rows."""

    name: str
    options: Mapping[str, str]
    watermark: Watermark | None = None
    is_streaming: bool = field(default=True, init=False)
    kind: str = field(default="rate", init=False)


Source = TopicSource | FileSource | DeltaSource | TableSource | SqlSource | RateSource


@dataclass(frozen=True, slots=True)
class SqlText:
    """A query, where its lines stand, and what it reads (None: it could not be read)."""

    text: str
    file: Path
    lines: tuple[int, ...]  # of the file, for each line of the text
    query: SqlQuery | None

    def line(self, within: int) -> int:
        # The value of a variable may add lines that the file does not have.
        return self.lines[min(within, len(self.lines) - 1)]


@dataclass(frozen=True, slots=True)
class SqlStep:
    name: str
    sql: SqlText
    kind: str = field(default="sql", init=False)


@dataclass(frozen=True, slots=True)
class WatermarkStep:
    name: str
    reads: str
    watermark: Watermark
    kind: str = field(default="watermark", init=False)


@dataclass(frozen=True, slots=True)
class DedupeStep:
    """One row for each key: within the watermark, or for ever (state grows with the keys)."""

    name: str
    reads: str
    keys: tuple[str, ...]
    is_within_watermark: bool = True
    kind: str = field(default="dedupe", init=False)


@dataclass(frozen=True, slots=True)
class FunctionReference:
    """`module:function`, or `path/to/file.py:function` with the path resolved."""

    module: str | None
    file: Path | None
    function: str

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.function}"


@dataclass(frozen=True, slots=True)
class PythonStep:
    """`function(frame, ..., **arguments)` with one frame for each name in `reads`."""

    name: str
    reads: tuple[str, ...]
    function: FunctionReference
    arguments: Mapping[str, Any]
    kind: str = field(default="python", init=False)


Step = SqlStep | WatermarkStep | DedupeStep | PythonStep


@dataclass(frozen=True, slots=True)
class TopicSink:
    """`key` and `value` are SQL expressions; `format = "json"` makes the value of all columns."""

    name: str
    reads: str
    options: Mapping[str, str]
    topic: str | None = None  # None: rows name theirs in a column
    key: str | None = None
    value: str | None = None
    is_json: bool = False
    mode: OutputMode = OutputMode.APPEND
    trigger: Trigger = field(default_factory=Trigger)
    kind: str = field(default="topic", init=False)


@dataclass(frozen=True, slots=True)
class ParquetSink:
    name: str
    reads: str
    path: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    trigger: Trigger = field(default_factory=Trigger)
    mode: OutputMode = field(default=OutputMode.APPEND, init=False)
    kind: str = field(default="parquet", init=False)


@dataclass(frozen=True, slots=True)
class DeltaSink:
    name: str
    reads: str
    path: str
    partition_by: tuple[str, ...]
    trigger: Trigger = field(default_factory=Trigger)
    mode: OutputMode = field(default=OutputMode.APPEND, init=False)
    kind: str = field(default="delta", init=False)


@dataclass(frozen=True, slots=True)
class IcebergSink:
    """A table of a pyiceberg catalog; `catalog` holds the catalog's properties."""

    name: str
    reads: str
    table: str
    path: str  # where data files are written
    catalog: Mapping[str, str]
    trigger: Trigger = field(default_factory=Trigger)
    mode: OutputMode = field(default=OutputMode.APPEND, init=False)
    kind: str = field(default="iceberg", init=False)


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    name: str
    reads: str
    rows_max: int = 20
    mode: OutputMode = OutputMode.APPEND
    trigger: Trigger = field(default_factory=Trigger)
    kind: str = field(default="console", init=False)


Sink = TopicSink | ParquetSink | DeltaSink | IcebergSink | ConsoleSink


@dataclass(frozen=True, slots=True)
class SparkSettings:
    master: str | None
    conf: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """One file. Sources and steps are by name in the order of the file."""

    name: str
    file: Path
    checkpoint: str
    restart: RestartPolicy
    drain_timeout_ms: int
    spark: SparkSettings
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    sinks: Mapping[str, Sink]
    state_dir: Path | None = None

    def checkpoint_of(self, sink: str) -> str:
        """Where Spark keeps the progress of one sink's query."""
        return f"{self.checkpoint.rstrip('/')}/{sink}"
