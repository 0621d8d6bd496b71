"""Which part of which micro-batch a writer is: what makes a second run of it recognisable."""

from dataclasses import dataclass

from pyspark.taskcontext import TaskContext

from tidelog.spark.errors import SparkError

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """A Spark partition of a micro-batch. The query's id is that of its checkpoint."""

    query_id: str
    batch_id: int
    partition_id: int


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


def current_partition() -> int:
    """The Spark partition that this process writes now."""
    return _context().partitionId()


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SparkError("rows are written by Spark's tasks, and this is none")
    return context
