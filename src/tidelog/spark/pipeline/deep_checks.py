"""What only Spark can tell about a pipeline: columns, types, and what its streams allow.

Frames are made and analysed, but nothing is read and no query starts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog.spark.errors import OptionError
from tidelog.spark.pipeline.failure import failure_reason
from tidelog.spark.pipeline.file import PipelineFile
from tidelog.spark.pipeline.frames import ViewError, make_view
from tidelog.spark.pipeline.graph import Graph
from tidelog.spark.pipeline.model import Sink, SqlSource, SqlStep, TopicSink
from tidelog.spark.pipeline.problems import Problem, Problems
from tidelog.spark.pipeline.queries import shape_for_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLACE = re.compile(r"[;(] ?line (\d+),? pos \d+\)?")


def check_deep(file: PipelineFile, spark: SparkSession) -> tuple[Problem, ...]:
    """Problems of a file that has none by itself."""
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
            message = _sink_problem(sink, frames[view], spark)
            if message is not None:
                problems.error(file.file, lines.line(("sinks", sink.name)), message)
    return tuple(problems)


def _report_view(
    problems: Problems, file: PipelineFile, graph: Graph, name: str, cause: BaseException
) -> None:
    assert file.document is not None
    reason = failure_reason(str(cause)) or repr(cause)
    node = graph.views[name]
    if isinstance(node, SqlStep | SqlSource):
        place = _PLACE.search(str(cause))
        line = node.sql.line(int(place[1]) - 1 + _blank_start(node.sql.text) if place else 0)
        problems.error(node.sql.file, line, _PLACE.sub("", reason).rstrip("; "))
        return
    part = "sources" if name in graph.spec.sources else "steps"
    problems.error(file.file, file.document.lines.line((part, name)), reason)


def _blank_start(text: str) -> int:
    """Lines that are stripped before Spark counts."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _sink_problem(sink: Sink, frame: DataFrame, spark: SparkSession) -> str | None:
    from pyspark.errors import PySparkException

    try:
        if isinstance(sink, TopicSink):
            from tidelog.spark.sink.options import parse_sink_options

            frame = shape_for_topic(frame, sink)
            parse_sink_options(sink.options, frame.schema, streaming=True)
        missing = [name for name in getattr(sink, "partition_by", ()) if name not in frame.columns]
        if missing:
            return f"'partition_by': '{sink.reads}' has no column {missing[0]}"
        _check_output_mode(sink, frame, spark)
    except OptionError as error:
        return str(error)
    except PySparkException as error:
        return failure_reason(str(error))
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
