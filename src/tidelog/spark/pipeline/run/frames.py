"""From the model to Spark's DataFrames: one view for each source and step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.spark.errors import SparkError
from tidelog.spark.pipeline.file.durations import spark_interval
from tidelog.spark.pipeline.file.graph import Graph
from tidelog.spark.pipeline.file.model import (
    DedupeStep,
    DeltaSource,
    FileSource,
    PythonStep,
    RateSource,
    Source,
    SqlSource,
    SqlStep,
    Step,
    TableSource,
    TopicSource,
    Watermark,
    WatermarkStep,
)
from tidelog.spark.pipeline.file.value_format import CORRUPT_COLUMN
from tidelog.spark.pipeline.run.functions import load_function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ViewError(SparkError):
    """A view could not be made; `view` is its name, the cause is Spark's or the function's."""

    def __init__(self, view: str, cause: BaseException) -> None:
        super().__init__(f"{view}: {cause}")
        self.view = view
        self.cause = cause


def make_frame(graph: Graph, spark: SparkSession, view: str, *, owned: frozenset[str]) -> DataFrame:
    """The DataFrame of a view, made anew together with all that it reads.

    `owned` are the sources whose dead letters and group offsets this query writes.

    The views are (re)placed in the session as temporary ones; Spark has resolved them when this
    returns.
    """
    frames: dict[str, DataFrame] = {}
    for name in graph.order(view):
        frames[name] = make_view(graph, spark, name, frames, is_owned=name in owned)
    return frames[view]


def make_view(
    graph: Graph,
    spark: SparkSession,
    name: str,
    frames: dict[str, DataFrame],
    *,
    is_owned: bool = True,
) -> DataFrame:
    """One view, from the frames of those that it reads; ViewError if it cannot be made."""
    node = graph.views[name]
    try:
        if isinstance(node, TopicSource) and not is_owned:
            frame = _with_watermark(_reading_along(node, spark), node.watermark)
        else:
            frame = _frame(node, spark, graph, frames)
        frame.createOrReplaceTempView(name)
    except Exception as error:
        raise ViewError(name, error) from error
    return frame


def _frame(
    node: Source | Step, spark: SparkSession, graph: Graph, frames: dict[str, DataFrame]
) -> DataFrame:
    def read(name: str) -> DataFrame:
        found = graph.find(name)
        assert found is not None, "a file without errors names only views that exist"
        return frames[found]

    match node:
        case SqlStep() | SqlSource():
            return spark.sql(node.sql.text.strip().rstrip(";"))
        case WatermarkStep():
            return _with_watermark(read(node.reads), node.watermark)
        case DedupeStep():
            return _deduplicated(read(node.reads), node)
        case PythonStep():
            return _called(node, [read(name) for name in node.reads])
        case DeltaSource():
            from tidelog.spark.lake.data_frame import read as read_table

            return read_table(spark, node.path)
        case _:
            return _with_watermark(_loaded(node, spark), node.watermark)


def _loaded(
    source: TopicSource | FileSource | TableSource | RateSource, spark: SparkSession
) -> DataFrame:
    reader = spark.readStream if source.is_streaming else spark.read
    match source:
        case TopicSource():
            return reader.format("tidelog").options(**source.options).load()
        case RateSource():
            return reader.format("rate").options(**source.options).load()
        case TableSource():
            return reader.table(source.table)
        case FileSource():
            if source.schema is not None:
                reader = reader.schema(source.schema)
            return reader.format(source.kind).options(**source.options).load(source.path)


def _reading_along(source: TopicSource, spark: SparkSession) -> DataFrame:
    """The same rows as the owner's, without its dead letters and group offsets."""
    options = {
        name: value
        for name, value in source.options.items()
        if name.lower() not in ("deadlettertopic", "groupid")
    }
    if source.dead_letter_topic is None:
        return _loaded(replace(source, options=options), spark)
    loaded = _loaded(replace(source, options={**options, "corruptRows": "column"}), spark)
    return loaded.where(f"{CORRUPT_COLUMN} IS NULL").drop(CORRUPT_COLUMN)


def _with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is None:
        return frame
    return frame.withWatermark(watermark.column, spark_interval(watermark.delay_ms))


def _deduplicated(frame: DataFrame, step: DedupeStep) -> DataFrame:
    keys = list(step.keys)
    if step.is_within_watermark and frame.isStreaming:
        return frame.dropDuplicatesWithinWatermark(keys)
    return frame.dropDuplicates(keys)


def _called(step: PythonStep, frames: list[DataFrame]) -> DataFrame:
    made = load_function(step.function)(*frames, **step.arguments)
    if not hasattr(made, "writeStream"):
        kind = type(made).__name__
        raise SparkError(f"{step.function} must return a DataFrame, but returned {kind}")
    return made  # type: ignore[no-any-return]
