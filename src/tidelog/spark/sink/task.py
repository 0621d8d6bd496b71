"""Which part of which micro-batch a writer is: what makes a second run of it recognisable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.taskcontext import TaskContext

from tidelog.spark.errors import SparkError
from tidelog.spark.sink.names import WriterKind

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """A Spark partition of a micro-batch. The query's id is that of its checkpoint, or, of a batch
    job, that of its application; the number of the batch is then its version."""

    query_id: str
    batch_id: int
    partition_id: int
    kind: WriterKind = WriterKind.QUERY


def current_task() -> TaskIdentity:
    """The task that this process runs now."""
    context = _context()
    query_id = context.getLocalProperty(_QUERY_ID)
    batch_id = context.getLocalProperty(_BATCH_ID)
    if query_id is None or batch_id is None:
        raise SparkError(
            "Spark does not tell the ids of the query and the batch here, which exactly-once needs:"
            " set deliveryGuarantee to at-least-once"
        )
    return TaskIdentity(query_id, int(batch_id), context.partitionId())


def driver_query_id(session: SparkSession) -> str | None:
    """The query whose `foreachBatch` the driver runs now; over Spark Connect nobody tells."""
    context: SparkContext | None = getattr(session, "sparkContext", None)
    return None if context is None else context.getLocalProperty(_QUERY_ID)


def current_partition() -> int:
    """The Spark partition that this process writes now."""
    return _context().partitionId()


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SparkError("rows are written by Spark's tasks, and this is none")
    return context
