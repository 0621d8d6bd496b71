"""The sink of a batch job: `df.write.format("tidelog").save()`.

With exactly-once every task writes in a transaction of its own, which the driver commits when all
are done: readers of committed records see nothing of a job that failed before that. If the driver
dies while it commits, a part stays. A job that is run again is another one, and writes its rows
again; unless the options txnAppId and txnVersion say that it is the same: then it is written as
batch txnVersion of the query txnAppId (see `stream_writer`), once, and completed if need be.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.client.cluster import ClusterClient
from tidelog.spark.errors import SparkError
from tidelog.spark.sink.at_least_once import write_at_least_once
from tidelog.spark.sink.driver import abort_batch, verify
from tidelog.spark.sink.lent_client import lent_client
from tidelog.spark.sink.messages import Prepared, Written
from tidelog.spark.sink.names import WriterKind, WriterNames
from tidelog.spark.sink.options import Guarantee, SinkOptions
from tidelog.spark.sink.stream_writer import TidelogStreamWriter
from tidelog.spark.sink.task import TaskIdentity, current_partition
from tidelog.spark.sink.transaction import OpenTransaction, Transactions

if TYPE_CHECKING:
    import pyarrow as pa


class TidelogBatchWriter(DataSourceArrowWriter):
    """Writes the rows of one job. Made once on the driver; its tasks have copies."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        known = options.transaction
        self.names = WriterNames(
            options.transactional_id_prefix,
            WriterKind.RUN if known is None else WriterKind.JOB,
            uuid.uuid4().hex if known is None else known.application_id,
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: write its rows."""
        if self.options.guarantee is Guarantee.AT_LEAST_ONCE:
            return write_at_least_once(self.options, iterator)
        return self.write_part(current_partition(), iterator)

    def write_part(
        self, partition_id: int, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write the rows of a Spark partition that is given by number."""
        known = self.options.transaction
        if known is not None:
            task = TaskIdentity(known.application_id, known.version, partition_id, WriterKind.JOB)
            return self._stream_writer().write_part(task, iterator)
        from tidelog.spark.sink.writing import MeasuredRows, with_rows, write_in_transaction

        batches = with_rows(iterator)
        first = next(batches, None)
        if first is None:
            return Written()
        rows = MeasuredRows(chain([first], batches))
        with lent_client(self.options) as client:
            transactions = Transactions(client)
            transaction = transactions.init(
                self.names.task(partition_id), self.options.transaction_timeout_ms
            )
            try:
                counts = write_in_transaction(client, self.options, transaction, rows)
            except Exception:
                transactions.roll_back(transaction)
                raise
        return Prepared(transaction, self.names, False, rows.shape, counts)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, when all tasks are done."""
        known = self.options.transaction
        if known is not None:
            self._stream_writer().commit(messages, known.version)
            return
        prepared = [each.transaction for each in messages if isinstance(each, Prepared)]
        if prepared:
            with lent_client(self.options) as client:
                _commit(client, prepared)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, when a task or the commit has failed: nothing stays open."""
        if self.options.guarantee is Guarantee.AT_LEAST_ONCE:
            return
        known = self.options.transaction
        if known is not None:
            with lent_client(self.options, to_abort=True) as client:
                abort_batch(client, self.names, messages, known.version)
            return
        with lent_client(self.options, to_abort=True) as client:
            transactions = Transactions(client)
            states = transactions.describe(
                self.names.task(number) for number in range(len(messages))
            )
            transactions.end(transactions.still_open(states), commit=False)

    def _stream_writer(self) -> TidelogStreamWriter:
        return TidelogStreamWriter(self.options, self.schema)


def _commit(client: ClusterClient, prepared: Sequence[OpenTransaction]) -> None:
    verify(client, prepared)
    transactions = Transactions(client)
    refused = transactions.end(prepared, commit=True)
    states = transactions.describe(each.transactional_id for each in refused)
    for each, code in refused.items():
        # A coordinator that was restarted does not know a repeated commit for what it is.
        if not each.was_committed(states[each.transactional_id]):
            raise SparkError(
                f"the job was committed but for {each.transactional_id}: {code.name}; its rows are"
                " missing"
            )
