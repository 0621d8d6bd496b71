"""A task's part of a micro-batch: whether it is to be written, and in which transaction.

The protocol is told in `stream_writer`.
"""

from dataclasses import replace

from tidelog.client.cluster import ClusterClient, Retries
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.errors import SparkError
from tidelog.spark.sink.driver import roll_forward, split_error
from tidelog.spark.sink.markers import MARKER_PLACE, DecisionHead, Markers, create_marker_topic
from tidelog.spark.sink.names import WriterNames
from tidelog.spark.sink.options import SinkOptions
from tidelog.spark.sink.task import TaskIdentity
from tidelog.spark.sink.transaction import FENCED, OpenTransaction, Transactions

# By transactional id and its timeout: the newest batch that this process prepared, and in which
# transaction. With transactions v2 the end of that one raised the epoch by one, so the next is
# known without asking.
_prepared: dict[tuple[str, int], tuple[int, OpenTransaction]] = {}


class TaskPart:
    """The part of one task, in one attempt."""

    def __init__(self, client: ClusterClient, options: SinkOptions, task: TaskIdentity) -> None:
        self.names = WriterNames(options.transactional_id_prefix, task.kind, task.query_id)
        self.transactional_id = self.names.task(task.partition_id)
        self.is_repair = False
        self._client = client
        self._timeout_ms = options.transaction_timeout_ms
        self._batch_id = task.batch_id
        self._markers = Markers(client)
        self._transactions = Transactions(client)

    def begin(self) -> OpenTransaction | None:
        """A transaction that has the marker and waits for the rows; None if they are committed."""
        committed, head = self._markers.state(self.names, self.transactional_id)
        if self._is_done(committed, head):
            return None
        if not self.is_repair:
            following = self._following(committed)
            if following is not None and self._enter(following):
                return following
        transaction = self._transactions.init(self.transactional_id, self._timeout_ms)
        # Another attempt may have committed, or the driver decided, until this one was fenced.
        committed, head = self._markers.state(self.names, self.transactional_id)
        if self._is_done(committed, head):
            return None
        if not self._enter(transaction):
            raise SparkError(f"{self.transactional_id} was taken over by another attempt")
        return transaction

    def prepared(self, transaction: OpenTransaction) -> None:
        """All rows are written: remember what comes after this transaction."""
        _prepared[self.transactional_id, self._timeout_ms] = (self._batch_id, transaction)

    def abort(self, transaction: OpenTransaction) -> None:
        """Roll back what was written."""
        self._transactions.roll_back(transaction)

    def _is_done(self, committed: int, head: DecisionHead | None) -> bool:
        """Whether the rows are in the topic, after everything that was decided is carried out."""
        if committed >= self._batch_id:
            return True
        if head is None or head.batch_id < self._batch_id:
            return False
        if head.batch_id > self._batch_id:
            # A later batch was decided: this one is over, and this attempt comes from before that.
            return True
        decision = self._markers.whole(self.names, head)
        lost = roll_forward(self._client, decision)
        if not lost:
            return True
        if self.transactional_id not in decision.shapes:
            raise split_error(
                self._batch_id, lost, f"{self.transactional_id} has rows, and had none"
            )
        self.is_repair = self.transactional_id in lost
        return not self.is_repair

    def _following(self, committed: int) -> OpenTransaction | None:
        """The transaction after the one that this process prepared for an earlier batch.

        Not for the same batch: that one may be committed by a driver from before, unseen. Nor if
        another process has committed a later one since.
        """
        known = _prepared.pop((self.transactional_id, self._timeout_ms), None)
        if known is None:
            return None
        batch_id, last = known
        if batch_id >= self._batch_id or batch_id < committed or not last.is_v2:
            return None
        return replace(last, producer_epoch=last.producer_epoch + 1)

    def _enter(self, transaction: OpenTransaction) -> bool:
        """Put the marker into the transaction; False if it belongs to the past."""
        retries = Retries(self._client.timeout_s)
        while True:
            code = self._transactions.commit_offset(
                transaction, self.transactional_id, MARKER_PLACE, self._batch_id + 1
            )
            if code is ErrorCode.NONE:
                return True
            if code in FENCED:
                return False
            if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise SparkError(f"{self.transactional_id}: no marker can be set: {code.name}")
            create_marker_topic(self._client)
            retries.wait(self.transactional_id, f"{MARKER_PLACE.topic} is unknown")
