"""Rows of `mode = "update"` to a topic, each micro-batch once.

Spark gives sinks in Python only appended or complete results. Updated rows come through
`foreachBatch` instead: tasks write them as the sink's tasks do, and what they report goes to the
sink's commit, which knows a batch that runs again.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tidelog.errors import TidelogError
from tidelog.spark.pipeline.file.model import TopicSink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.datasource import WriterCommitMessage

    from tidelog.spark.sink import TidelogStreamWriter

_log = logging.getLogger(__name__)

_COLUMNS = ("key", "value", "headers", "topic", "partition")


def topic_updates(sink: TopicSink) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` calls with the columns of the topic sink."""

    def write(frame: DataFrame, batch_id: int) -> None:
        from tidelog.spark.sink import TidelogStreamWriter, parse_sink_options
        from tidelog.spark.sink.task import driver_query_id

        taken = frame.select(*(name for name in _COLUMNS if name in frame.columns))
        options = parse_sink_options(sink.options, taken.schema, streaming=True)
        writer = TidelogStreamWriter(options, taken.schema)
        try:
            reports = taken.mapInArrow(_writing(writer), "part INT, message BINARY").collect()
        except Exception:
            query_id = driver_query_id(frame.sparkSession)
            if query_id is not None:
                _roll_back(lambda: writer.abort_query(query_id, batch_id))
            raise
        # A part without rows may not have reported; those with rows keep their place.
        messages: list[WriterCommitMessage | None] = [None] * (
            max((each.part for each in reports), default=-1) + 1
        )
        for each in reports:
            messages[each.part] = pickle.loads(each.message)
        try:
            writer.commit(messages, batch_id)
        except Exception:
            _roll_back(lambda: writer.abort(messages, batch_id))
            raise

    return write


def _roll_back(abort: Callable[[], None]) -> None:
    """Never fails: the error that is on its way is the one to be told."""
    try:
        abort()
    except TidelogError as error:
        _log.warning("transactions stay open: %s", error)


def _writing(
    writer: TidelogStreamWriter,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from tidelog.spark.sink.task import current_partition

        message = pickle.dumps(writer.write(batches))
        columns = [pa.array([current_partition()], pa.int32()), pa.array([message], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, ["part", "message"])

    return write
