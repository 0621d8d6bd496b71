"""What a task tells the driver: pickled by Spark, so everything in here is importable."""

from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

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
    rows: int


@dataclass
class Prepared(WriterCommitMessage):
    """All rows are in the topic, in a transaction that is open and waits for the driver."""

    transaction: OpenTransaction
    decision_group: str | None
    """Where the driver records that the micro-batch is to be committed; None in a batch job."""
    is_repair: bool
    """Whether the micro-batch was decided before, and this part of it was lost after that."""
    rows: int
    rows_by_partition: dict[str, int]
