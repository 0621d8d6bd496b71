"""`format("tidelog-lake")`: any query into a Delta or Parquet table, exactly once, without a jar.

    path             the table's folder, which driver and executors share
    format           delta (default) or parquet
    partitionBy      columns that name the folders, with commas between: day,country
    targetFileSize   128MB
    txnAppId, txnVersion   batch writes only: a write with a version that the table has seen for
                     this application id is skipped, as in Delta; for foreachBatch

Tasks write files, the driver's commit adds them to the table in one version together with the
query's id and the batch's number; a batch that Spark runs again finds its number there.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidelog.spark.errors import OptionError, SparkError
from tidelog.spark.lake.data_file import DataFile
from tidelog.spark.lake.layout import Layout
from tidelog.spark.lake.opening import open_or_create
from tidelog.spark.lake.sizes import parse_size
from tidelog.spark.lake.table import Change, Snapshot, Table, commit_with_retries
from tidelog.spark.lake.writing import DEFAULT_TARGET_FILE_BYTES, Target, write_all

NAME = "tidelog-lake"

Messages = Sequence[WriterCommitMessage | None]

_OPTIONS = ("path", "format", "partitionBy", "targetFileSize", "txnAppId", "txnVersion")
# Spark's own, which it hands on.
_SPARK_OPTIONS = ("checkpointLocation", "queryName", "outputMode")


@dataclass(frozen=True, slots=True)
class LakeSinkOptions:
    """Where rows go, and in which transaction a batch write is."""

    path: str
    format: str
    partition_columns: tuple[str, ...]
    target_file_bytes: int
    transaction: tuple[str, int] | None


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """What one task wrote, and for which query."""

    files: tuple[DataFile, ...]
    query_id: str | None


class LakeDataSource(DataSource):
    """The sink; reading is `tidelog.spark.lake.read`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise SparkError(f'{NAME} only appends: write with mode("append")')
        return LakeBatchWriter(parse_lake_options(self.options), schema)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        options = parse_lake_options(self.options)
        if options.transaction is not None:
            raise OptionError("txnAppId: a streaming query has its own transactions; leave it out")
        if overwrite:
            raise SparkError(f'{NAME} only appends: use outputMode("append")')
        return LakeStreamWriter(options, schema)


def parse_lake_options(options: Mapping[str, str]) -> LakeSinkOptions:
    """Check the options of the sink; names are matched without regard to case."""
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower(): name for name in (*_OPTIONS, *_SPARK_OPTIONS)}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {known[near[0]]}?" if near else ""
            raise OptionError(f"{name}: unknown option of {NAME}{hint}")
    if not given.get("path"):
        raise OptionError(f"path: {NAME} needs the folder of the table")
    columns = [each.strip() for each in given.get("partitionby", "").split(",")]
    size = given.get("targetfilesize")
    transaction = None
    if ("txnappid" in given) != ("txnversion" in given):
        raise OptionError("txnAppId and txnVersion go together: one of them is missing")
    if "txnappid" in given:
        if not given["txnversion"].isdigit():
            raise OptionError(f"txnVersion: {given['txnversion']!r} is not a number")
        transaction = (given["txnappid"], int(given["txnversion"]))
    return LakeSinkOptions(
        given["path"],
        given.get("format", "delta"),
        tuple(each for each in columns if each),
        parse_size(size, option="targetFileSize") if size else DEFAULT_TARGET_FILE_BYTES,
        transaction,
    )


class LakeWrite:
    """One write into a table with the query's columns; its tasks have copies of it."""

    def __init__(self, options: LakeSinkOptions, schema: StructType) -> None:
        self._options = options
        self._target: Target = _open(options, schema).target(options.target_file_bytes)

    def write(self, batches: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """In a task: write its rows."""
        context = TaskContext.get()
        query_id = context.getLocalProperty("sql.streaming.queryId") if context else None
        schema = self._target.layout.schema
        files = write_all(self._target, (_cast(batch, schema) for batch in batches))
        return WrittenFiles(tuple(files), query_id)

    def commit(self, messages: Messages, transaction: tuple[str, int] | None) -> None:
        """On the driver: add what the tasks wrote, unless the transaction was there before."""
        files = [file for each in messages if isinstance(each, WrittenFiles) for file in each.files]

        def decide(base: Snapshot) -> Change | None:
            if transaction is None:
                return Change("write", adds=files) if files else None
            name, version = transaction
            seen = base.transaction(name)
            if seen is not None and seen >= version:
                return None
            return Change("write", adds=files, transactions={name: version})

        if not commit_with_retries(self._table(), decide):
            self.discard(messages)

    def discard(self, messages: Messages) -> None:
        """Remove what the tasks wrote, but for files that are committed.

        Spark also says that a write failed when the commit itself was done and what came after
        it was not.
        """
        committed = {file.path for file in self._table().snapshot().files}
        for each in messages:
            for file in each.files if isinstance(each, WrittenFiles) else ():
                if file.path not in committed:
                    self._target.place(file.path).unlink(missing_ok=True)

    def _table(self) -> Table:
        return open_or_create(self._options.path, self._options.format, self._target.layout)


class LakeBatchWriter(DataSourceArrowWriter):
    """All of a batch write is in the table after its commit, or nothing of it."""

    def __init__(self, options: LakeSinkOptions, schema: StructType) -> None:
        self._write = LakeWrite(options, schema)
        self._transaction = options.transaction

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._write.commit(messages, self._transaction)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._write.discard(messages)


class LakeStreamWriter(DataSourceStreamArrowWriter):
    """A micro-batch is one version of the table, once."""

    def __init__(self, options: LakeSinkOptions, schema: StructType) -> None:
        self._write = LakeWrite(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        queries = {each.query_id for each in messages if isinstance(each, WrittenFiles)}
        assert len(queries) < 2, "all tasks of a batch are of one query"
        for query_id in queries:
            self._write.commit(messages, (f"tidelog/query/{query_id}", batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._write.discard(messages)


def _open(options: LakeSinkOptions, schema: StructType) -> Table:
    missing = [each for each in options.partition_columns if each not in schema.names]
    if missing:
        raise OptionError(f"partitionBy: the query has no column {missing[0]!r}")
    columns = to_arrow_schema(schema, timezone="UTC")
    nullable = pa.schema([each.with_nullable(True) for each in columns])
    layout = Layout(nullable, options.partition_columns, is_archive=False)
    return open_or_create(options.path, options.format, layout)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> Any:
    return batch if batch.schema.equals(schema) else batch.cast(schema)
