"""What a task tells the driver: pickled by Spark, so everything in here is importable."""

from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from tidelog.spark.sink.names import WriterNames
from tidelog.spark.sink.shape import Shape
from tidelog.spark.sink.transaction import OpenTransaction


@dataclass
class Written(WriterCommitMessage):
    """The rows are there, and nothing is to be done for them; `rows` may be 0."""

    rows: int = 0
    rows_by_partition: dict[str, int] = field(default_factory=dict)


@dataclass
class AlreadyCommitted(WriterCommitMessage):
    """An earlier run of this micro-batch has committed the task's part; its rows were skipped."""

    transactional_id: str
    names: WriterNames
    shape: Shape


@dataclass
class Prepared(WriterCommitMessage):
    """All rows are in the topic, in a transaction that is open and waits for the driver."""

    transaction: OpenTransaction
    names: WriterNames
    is_repair: bool
    """Whether the micro-batch was decided before, and this part of it was lost after that."""
    shape: Shape
    rows_by_partition: dict[str, int]
