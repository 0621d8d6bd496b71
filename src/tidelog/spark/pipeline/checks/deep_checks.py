"""What only Spark can tell about a pipeline: columns, types, and what its streams allow.

Frames are made and analysed, but nothing is read and no query starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidelog.spark.errors import OptionError
from tidelog.spark.pipeline.checks.option_checks import key_of
from tidelog.spark.pipeline.file.document import Document
from tidelog.spark.pipeline.file.graph import Graph
from tidelog.spark.pipeline.file.model import (
    DedupeStep,
    PythonStep,
    Sink,
    Source,
    SqlSource,
    SqlStep,
    Step,
    TopicSink,
    WatermarkStep,
)
from tidelog.spark.pipeline.file.problems import Problem, Problems
from tidelog.spark.pipeline.file.toml_lines import Path as KeyPath
from tidelog.spark.pipeline.pipeline_file import PipelineFile
from tidelog.spark.pipeline.run.failure import failure_reason, for_people
from tidelog.spark.pipeline.run.frames import ViewError, make_view
from tidelog.spark.pipeline.run.queries import shape_for_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLACE = re.compile(r"[;(] ?line (\d+),? pos \d+\)?")


def check_deep(file: PipelineFile, spark: SparkSession) -> tuple[Problem, ...]:
    """Problems of a file that has none by itself."""
    with _quiet_pyspark():
        return _check_deep(file, spark)


@contextmanager
def _quiet_pyspark() -> Iterator[None]:
    """PySpark logs what it raises, a page of JSON for each: here every problem becomes a line."""
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled


def _check_deep(file: PipelineFile, spark: SparkSession) -> tuple[Problem, ...]:
    assert file.spec is not None, "a file with errors is not checked further"
    assert file.document is not None
    problems = Problems()
    graph = Graph(file.spec)
    lines = file.document.lines
    frames: dict[str, DataFrame] = {}
    for name in graph.order():
        if any(read not in frames for read in graph.reads(name)):
            continue
        try:
            frames[name] = make_view(graph, spark, name, frames)
        except ViewError as error:
            _report_view(problems, file, graph, name, error.cause)
    for sink in file.spec.sinks.values():
        view = graph.view_of(sink)
        if view in frames:
            found = _sink_problem(sink, frames[view], spark)
            if found is not None:
                path, message = found
                problems.error(file.file, lines.line(path), message)
    return tuple(problems)


def _report_view(
    problems: Problems, file: PipelineFile, graph: Graph, name: str, cause: BaseException
) -> None:
    assert file.document is not None
    reason = _reason(cause)
    node = graph.views[name]
    if isinstance(node, SqlStep | SqlSource):
        place = _PLACE.search(str(cause))
        line = node.sql.line(int(place[1]) - 1 + _blank_start(node.sql.text) if place else 0)
        problems.error(node.sql.file, line, reason)
        return
    path = _view_key(file.document, node, reason)
    problems.error(file.file, file.document.lines.line(path), reason)


def _view_key(document: Document, node: Source | Step, reason: str) -> KeyPath:
    """The key that a view's failure is about, as far as it can be told."""
    match node:
        case PythonStep():
            return ("steps", node.name, "python")
        case DedupeStep():
            return ("steps", node.name, "keys")
        case WatermarkStep():
            return ("steps", node.name, "column")
    watermark = getattr(node, "watermark", None)
    if watermark is not None and f"`{watermark.column}`" in reason:
        return ("sources", node.name, "watermark", "column")
    options = getattr(node, "options", {})
    return key_of(document, ("sources", node.name), options, reason)


def _reason(error: BaseException) -> str:
    reason = for_people(failure_reason(str(error))) if str(error) else repr(error)
    return _PLACE.sub("", reason).rstrip("; ")


def _blank_start(text: str) -> int:
    """Lines that are stripped before Spark counts."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _sink_problem(sink: Sink, frame: DataFrame, spark: SparkSession) -> tuple[KeyPath, str] | None:
    """What is wrong, and the key that it is about."""
    from pyspark.errors import PySparkException

    section = ("sinks", sink.name)
    path: KeyPath = section
    try:
        if isinstance(sink, TopicSink):
            from tidelog.spark.sink.options import parse_sink_options

            for key in ("key", "value"):
                if expression := getattr(sink, key):
                    path = (*section, key)
                    frame.selectExpr(expression)
            path = section
            frame = shape_for_topic(frame, sink)
            parse_sink_options(sink.options, frame.schema, streaming=True)
        missing = [name for name in getattr(sink, "partition_by", ()) if name not in frame.columns]
        if missing:
            message = f"'partition_by': '{sink.reads}' has no column {missing[0]}"
            return (*section, "partition_by"), message
        _check_output_mode(sink, frame, spark)
    except OptionError as error:
        return section, str(error)
    except PySparkException as error:
        return path, _reason(error)
    return None


def _check_output_mode(sink: Sink, frame: DataFrame, spark: SparkSession) -> None:
    """Spark's own check of stateful operations against the output mode, in a classic session."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return
    from pyspark import SparkContext

    java = SparkContext._jvm
    assert java is not None
    mode = getattr(java.org.apache.spark.sql.streaming.OutputMode, sink.mode.value.capitalize())()
    checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(plan.queryExecution().analyzed(), mode)
