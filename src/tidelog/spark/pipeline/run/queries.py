"""Starting the query of a sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.spark.pipeline.file.durations import spark_interval
from tidelog.spark.pipeline.file.model import (
    ConsoleSink,
    DeltaSink,
    IcebergSink,
    OutputMode,
    ParquetSink,
    PipelineSpec,
    Sink,
    TopicSink,
    Trigger,
    TriggerKind,
)
from tidelog.spark.pipeline.run.topic_updates import topic_updates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# (sink, batch, columns, rows) of a console sink
OnRows = Callable[[str, int, list[str], "list[Row]"], None]


def start_query(
    spec: PipelineSpec, sink: Sink, frame: DataFrame, spark: SparkSession, on_rows: OnRows
) -> StreamingQuery:
    """Start writing, from the sink's checkpoint if it has one."""
    shaped = shape_for_topic(frame, sink) if isinstance(sink, TopicSink) else frame
    writer = (
        shaped.writeStream.queryName(f"{spec.name}/{sink.name}")
        .outputMode(sink.mode.value)
        .option("checkpointLocation", spec.checkpoint_of(sink.name))
    )
    writer = _triggered(writer, sink.trigger)
    match sink:
        case TopicSink():
            if sink.mode is not OutputMode.UPDATE:
                return writer.format("tidelog").options(**sink.options).start()
            writer = writer.foreachBatch(topic_updates(sink))
        case ParquetSink():
            if sink.partition_by:
                writer = writer.partitionBy(*sink.partition_by)
            return writer.format("parquet").options(**sink.options).start(sink.path)
        case DeltaSink():
            return _to_delta(writer, sink, spark).start(sink.path)
        case IcebergSink():
            from tidelog.spark.pipeline.run.iceberg import iceberg_batches

            writer = writer.foreachBatch(iceberg_batches(sink))
        case ConsoleSink():
            writer = writer.foreachBatch(_console_batches(sink, on_rows))
    return writer.start()


def _triggered(writer: DataStreamWriter, trigger: Trigger) -> DataStreamWriter:
    if trigger.kind is TriggerKind.AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    if trigger.kind is TriggerKind.ONCE:
        return writer.trigger(once=True)
    return writer.trigger(processingTime=spark_interval(trigger.interval_ms))


def shape_for_topic(frame: DataFrame, sink: TopicSink) -> DataFrame:
    """The columns that the topic sink takes, as `key`, `value` and `format` ask."""
    from pyspark.sql import functions as F  # noqa: N812

    key = None if sink.key is None else F.expr(sink.key)
    if sink.is_json:
        # Rows that name their topic keep that column beside the JSON, not in it.
        names_topic = sink.topic is None and "topic" in frame.columns
        values = [f"`{name}`" for name in frame.columns if not (names_topic and name == "topic")]
        columns = [F.to_json(F.struct(*values)).alias("value")]
        if key is not None:
            columns.append(key.alias("key"))
        if names_topic:
            columns.append(F.col("topic"))
        frame = frame.select(*columns)
    else:
        made = {} if key is None else {"key": key}
        if sink.value is not None:
            made["value"] = F.expr(sink.value)
        if made:
            frame = frame.withColumns(made)
    return frame.withColumns(
        {
            name: F.col(name).cast("string")
            for name, kind in frame.dtypes
            if name in ("key", "value") and kind not in ("string", "binary")
        }
    )


def _to_delta(writer: DataStreamWriter, sink: DeltaSink, spark: SparkSession) -> DataStreamWriter:
    from tidelog.spark.lake.sink import NAME, LakeDataSource

    spark.dataSource.register(LakeDataSource)
    writer = writer.format(NAME).option("format", "delta")
    if sink.partition_by:
        writer = writer.option("partitionBy", ",".join(sink.partition_by))
    return writer


def _console_batches(sink: ConsoleSink, on_rows: OnRows) -> Callable[[Any, int], None]:
    def show(frame: DataFrame, batch_id: int) -> None:
        rows = frame.limit(sink.rows_max).collect()
        if rows:
            on_rows(sink.name, batch_id, frame.columns, rows)

    return show
