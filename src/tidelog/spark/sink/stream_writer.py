"""The streaming sink, and how a micro-batch lands once.

With `deliveryGuarantee` exactly-once, each Spark partition of a query has a transactional id, which
is also a group's id (see `names`). Batch N goes like this:

1. A task with rows looks at its marker and at the query's decision (see `markers`). If its part of
   batch N was committed before, it skips the rows. Otherwise it begins a transaction, which fences
   and rolls back whatever an earlier attempt left, puts the marker N + 1 into it, writes its rows,
   and leaves it open: the part is *prepared*.
2. The driver, when all tasks are done, verifies that every prepared transaction is still open,
   records the *decision* that batch N is to be committed, with the list of these transactions, and
   commits them all.
3. Before the decision a crash leaves nothing: the next attempt rolls back what is open. After it,
   everything goes forward: the next attempt finds the decision, commits what is still open on its
   list, and skips its rows. What was lost between decision and commit (a transaction ran into
   kafka.transaction.timeout.ms, or an attempt from before the crash woke up and fenced it) is
   written again; the markers tell exactly which parts those are.

So a reader of committed records sees all of a batch or, until the query runs again, none of it or
a part; and each row once. For a part to be written again it has to be the same part: the query must
split the batch into the same partitions again. The decision keeps the `shape` of each part, and if
one was lost, the driver compares them all before it commits anything. If none was lost, all rows
are in the topic, and it does not matter how they are split now.

With at-least-once, rows are visible as they are written, and are there twice when a batch runs
again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.spark.runtime.worker_memory import freeze_imports
from tidelog.spark.sink.at_least_once import write_at_least_once
from tidelog.spark.sink.checkpoint import checkpoint_query_id
from tidelog.spark.sink.driver import abort_batch, abort_query, commit_batch
from tidelog.spark.sink.lent_client import lent_client
from tidelog.spark.sink.messages import AlreadyCommitted, Prepared, Written
from tidelog.spark.sink.names import WriterKind, WriterNames
from tidelog.spark.sink.options import Guarantee, SinkOptions
from tidelog.spark.sink.part import TaskPart
from tidelog.spark.sink.task import TaskIdentity, current_task

if TYPE_CHECKING:
    import pyarrow as pa


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Made anew for each, on the driver and in every task."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: write its rows."""
        if self.options.guarantee is Guarantee.AT_LEAST_ONCE:
            written: WriterCommitMessage = write_at_least_once(self.options, iterator)
        else:
            written = self.write_part(current_task(), iterator)
        freeze_imports()
        return written

    def write_part(
        self, task: TaskIdentity, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write the rows of a task that is given by name."""
        # The driver has no use for it, and compiled code takes a while to load.
        from tidelog.spark.sink.writing import MeasuredRows, with_rows, write_in_transaction

        batches = with_rows(iterator)
        first = next(batches, None)
        if first is None:
            return Written()
        rows = MeasuredRows(chain([first], batches))
        with lent_client(self.options) as client:
            part = TaskPart(client, self.options, task)
            transaction = part.begin()
            if transaction is None:
                deque(rows, maxlen=0)
                return AlreadyCommitted(part.transactional_id, part.names, rows.shape)
            try:
                counts = write_in_transaction(client, self.options, transaction, rows)
            except Exception:
                part.abort(transaction)
                raise
            part.prepared(transaction)
            return Prepared(transaction, part.names, part.is_repair, rows.shape, counts)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when all tasks are done."""
        reports = [each for each in messages if isinstance(each, Prepared | AlreadyCommitted)]
        if reports:
            with lent_client(self.options) as client:
                commit_batch(client, reports, batchId)
        freeze_imports()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when a task or the commit has failed: nothing stays open."""
        if self.options.guarantee is Guarantee.AT_LEAST_ONCE:
            return
        names = self._names(messages)
        if names is not None:
            with lent_client(self.options, to_abort=True) as client:
                abort_batch(client, names, messages, batchId)

    def abort_query(self, query_id: str, batch_id: int) -> None:
        """The same for one who knows the query, but nothing of its tasks."""
        if self.options.guarantee is Guarantee.AT_LEAST_ONCE:
            return
        with lent_client(self.options, to_abort=True) as client:
            abort_query(client, self._query_names(query_id), batch_id)

    def _names(self, messages: Sequence[WriterCommitMessage | None]) -> WriterNames | None:
        """Those of the query, of which Spark does not tell the driver: from a task, or else from
        the checkpoint. None if neither is at hand: then what is open waits for the next start."""
        for each in messages:
            if isinstance(each, Prepared | AlreadyCommitted):
                return each.names
        if self.options.checkpoint_location is None:
            return None
        query_id = checkpoint_query_id(self.options.checkpoint_location)
        return None if query_id is None else self._query_names(query_id)

    def _query_names(self, query_id: str) -> WriterNames:
        return WriterNames(self.options.transactional_id_prefix, WriterKind.QUERY, query_id)
