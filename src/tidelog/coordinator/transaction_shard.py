"""The transaction coordinator's state machine for one partition of `__transaction_state`.

It follows the pattern of `coordinator/shard.py`: requests give results, `replay` changes state.
Beside answers a result may carry `WriteMarkers`: the transaction is decided, and the server has
to write its markers once the records are committed, then call `markers_written`.

Two flows live side by side, told apart by the version of the request that ends a transaction:

* Up to EndTxn 4 a producer keeps its epoch from transaction to transaction.
* From EndTxn 5 (transactions v2) each end raises the epoch, and the answer says so. A late copy
  of an old request then names an old epoch and cannot touch the next transaction; a retry of the
  newest one names exactly one epoch less, and is answered as the first time.

When the coordinator itself aborts (a timeout, or a new incarnation of the producer), it raises the
epoch too. What a producer may end in which state is in `coordinator/transaction_end.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from tidelog.coordinator.records.transaction import TransactionLogKey, TransactionLogValue
from tidelog.coordinator.shard import CoordinatorRecord, CoordinatorResult, Reply
from tidelog.coordinator.timers import Timers
from tidelog.coordinator.transaction import (
    CLIENT_EPOCH_MAX,
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    STATUS_BY_LABEL,
    Transaction,
    TransactionStatus,
    from_record,
    tombstone,
)
from tidelog.coordinator.transaction_end import (
    check_end_v1,
    check_end_v2,
    check_epoch,
    check_producer,
)
from tidelog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition

# From this version of EndTxn on a transaction's end raises the epoch.
END_TXN_V2 = 5
_RETRY_MS = 1000


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """The broker's settings for transactions."""

    timeout_max_ms: int = 15 * 60 * 1000
    transactional_id_expiration_ms: int = 7 * 24 * 3600 * 1000
    abort_check_interval_ms: int = 10_000
    expiry_check_interval_ms: int = 3_600_000
    transaction_version: int = 2
    """The finalized level of the feature `transaction.version`."""

    @property
    def record_version(self) -> int:
        """0 while the feature is 0: older brokers read only that."""
        return min(self.transaction_version, 1)


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """An effect: every partition of a decided transaction needs its marker.

    start_ms, decided_ms: of this transaction, to tell it from the next of the same producer and
        epoch, which may be decided before the markers of this one are reported.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int
    start_ms: int
    decided_ms: int


@dataclass(frozen=True, slots=True)
class _LastEpoch:
    """What a producer's epoch was before it became (producer_id, producer_epoch).

    Not in the log: a retry across a restart of the coordinator is fenced, as in Kafka."""

    producer_id: int
    producer_epoch: int
    last_epoch: int


class TransactionShard:
    """The transactional ids of one partition."""

    def __init__(
        self,
        options: TransactionOptions,
        take_producer_id: Callable[[], int],
    ) -> None:
        """`take_producer_id` gives a producer id nobody has had, or raises ApiError."""
        self.options = options
        self.transactions: dict[str, Transaction] = {}
        self._take_producer_id = take_producer_id
        self._last_epochs: dict[str, _LastEpoch] = {}
        self._timers: Timers[CoordinatorResult[Any]] = Timers()

    # Requests

    def init_producer_id(
        self, request: InitProducerIdRequest, now_ms: int
    ) -> CoordinatorResult[InitProducerIdResponse]:
        """Gives a producer its id and epoch; fences and rolls back its earlier incarnation."""
        transactional_id = request.transactional_id
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        self._check_init(request)
        current = self.transactions.get(transactional_id)
        if current is None:
            return self._init_with(
                Transaction(
                    transactional_id,
                    self._take_producer_id(),
                    0,
                    request.transaction_timeout_ms,
                    TransactionStatus.EMPTY,
                    now_ms,
                ),
                NO_PRODUCER_EPOCH,
            )
        self._check_known_producer(current, request)
        if current.status.is_prepared:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if current.status is TransactionStatus.ONGOING:
            if request.producer_id != NO_PRODUCER_ID:
                check_epoch(current, request.producer_epoch)
            result: CoordinatorResult[InitProducerIdResponse] = CoordinatorResult()
            result.absorb(self._abort(current, now_ms))
            result.response = InitProducerIdResponse(
                error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=NO_PRODUCER_EPOCH
            )
            return result
        return self._reinitialize(current, request, now_ms)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        *,
        client_transaction_version: int = 1,
    ) -> CoordinatorResult[ErrorCode]:
        """Makes partitions part of the transaction, beginning it with the first."""
        current = self._find(transactional_id)
        check_producer(current, producer_id, producer_epoch)
        if current.status.is_prepared:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_ongoing = current.status is TransactionStatus.ONGOING
        joined = current.partitions.union(partitions)
        if is_ongoing and joined == current.partitions:
            return CoordinatorResult(response=ErrorCode.NONE)
        changed = replace(
            current,
            status=TransactionStatus.ONGOING,
            partitions=joined,
            start_ms=current.start_ms if is_ongoing else now_ms,
            last_update_ms=now_ms,
            client_transaction_version=client_transaction_version,
        )
        return CoordinatorResult(records=[self._record(changed)], response=ErrorCode.NONE)

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> CoordinatorResult[dict[TopicPartition, ErrorCode]]:
        """Says for each partition whether it is part of the producer's transaction."""
        current = self._find(transactional_id)
        check_producer(current, producer_id, producer_epoch)
        if current.status.is_prepared:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return CoordinatorResult(
            response={
                partition: ErrorCode.NONE
                if partition in current.partitions
                else ErrorCode.TRANSACTION_ABORTABLE
                for partition in partitions
            }
        )

    def end_transaction(
        self, request: EndTxnRequest, version: int, now_ms: int
    ) -> CoordinatorResult[EndTxnResponse]:
        """Decides the transaction. The answer waits for the decision only, not for the markers."""
        current = self._find(request.transactional_id)
        is_v2 = version >= END_TXN_V2
        check = check_end_v2 if is_v2 else check_end_v1
        if not check(current, request):
            return CoordinatorResult(response=_ended(current))
        return self._decide(
            current, request.committed, now_ms, client_transaction_version=2 if is_v2 else 1
        )

    def markers_written(self, markers: WriteMarkers, now_ms: int) -> CoordinatorResult[ErrorCode]:
        """Completes a decided transaction whose partitions all have their marker."""
        current = self.transactions.get(markers.transactional_id)
        if (
            current is None
            or not current.status.is_prepared
            or current.producer_id != markers.producer_id
            or current.producer_epoch != markers.producer_epoch
            or current.start_ms != markers.start_ms
            or current.last_update_ms != markers.decided_ms
            or current.partitions != markers.partitions
        ):
            # Completed before: the same markers were written twice.
            return CoordinatorResult(response=ErrorCode.NONE)
        return CoordinatorResult(
            records=[self._record(_completed(current, now_ms))], response=ErrorCode.NONE
        )

    # Questions

    def describe(self, transactional_id: str) -> Transaction:
        """Raises ApiError(TRANSACTIONAL_ID_NOT_FOUND)."""
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        current = self.transactions.get(transactional_id)
        if current is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return current

    def select(
        self,
        now_ms: int,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        matches: Callable[[str], object] | None = None,
    ) -> list[Transaction]:
        """The transactions that pass all filters; an empty filter lets everything pass."""
        wanted_states = {STATUS_BY_LABEL.get(label) for label in states}
        wanted_ids = set(producer_ids)
        return [
            transaction
            for transaction in self.transactions.values()
            if (not wanted_states or transaction.status in wanted_states)
            and (not wanted_ids or transaction.producer_id in wanted_ids)
            and (duration_ms < 0 or now_ms - transaction.start_ms > duration_ms)
            and (matches is None or matches(transaction.transactional_id))
        ]

    # The shard

    def replay(
        self, record: CoordinatorRecord, producer_id: int = -1, producer_epoch: int = -1
    ) -> None:
        assert isinstance(record.key, TransactionLogKey)
        transactional_id = record.key.transactional_id
        value = record.value
        if value is None:
            self._forget(transactional_id)
            return
        assert isinstance(value, TransactionLogValue)
        current = from_record(record.key, value)
        if current.status is TransactionStatus.DEAD:
            self._forget(transactional_id)
            return
        self.transactions[transactional_id] = current
        self._set_timer(current)

    def replay_end_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Nothing is written to this topic inside of transactions."""

    def loaded(self, now_ms: int) -> list[CoordinatorResult[Any]]:
        """Finishes what was decided before the coordinator stopped."""
        return [
            CoordinatorResult(effects=[_markers(transaction)])
            for transaction in self.transactions.values()
            if transaction.status.is_prepared
        ]

    def unload(self) -> list[Reply]:
        self._timers.clear()
        return []

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def clock_was_set(self, by_ms: int) -> None:
        """As in Kafka, deadlines stay: they count from times of the clock that are in the log."""

    def tick(self, now_ms: int) -> list[CoordinatorResult[Any]]:
        return self._timers.run_due(now_ms)

    # How a producer starts

    def _check_init(self, request: InitProducerIdRequest) -> None:
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "producer id and epoch are given together or not at all"
            )
        if not 0 < request.transaction_timeout_ms <= self.options.timeout_max_ms:
            raise ApiError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"a timeout of {request.transaction_timeout_ms} ms is not between 1 ms and"
                f" transaction.max.timeout.ms, {self.options.timeout_max_ms} ms",
            )
        if request.enable_2pc:
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "two-phase commit is not enabled on this broker",
            )
        if request.keep_prepared_txn:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, "prepared transactions cannot be kept on this broker"
            )

    def _check_known_producer(self, current: Transaction, request: InitProducerIdRequest) -> None:
        """A producer that names itself must be the current one, or the one before a change of id
        that it has not heard of."""
        if request.producer_id in (NO_PRODUCER_ID, current.producer_id):
            return
        if (
            request.producer_id == current.previous_producer_id
            and request.producer_epoch >= CLIENT_EPOCH_MAX
        ):
            return
        raise ApiError(ErrorCode.PRODUCER_FENCED, "another producer has this transactional id")

    def _reinitialize(
        self, current: Transaction, request: InitProducerIdRequest, now_ms: int
    ) -> CoordinatorResult[InitProducerIdResponse]:
        fresh = Transaction(
            current.transactional_id,
            current.producer_id,
            current.producer_epoch,
            request.transaction_timeout_ms,
            TransactionStatus.EMPTY,
            now_ms,
            previous_producer_id=current.previous_producer_id,
        )
        names_itself = request.producer_id != NO_PRODUCER_ID
        if names_itself and request.producer_epoch != current.producer_epoch:
            # The same request as before: its answer got lost, so the epoch is not raised again.
            if self._last_epoch(current) == request.producer_epoch:
                return self._init_with(fresh, request.producer_epoch)
            raise ApiError(
                ErrorCode.PRODUCER_FENCED,
                f"the epoch is {current.producer_epoch}, not {request.producer_epoch}",
            )
        last_epoch = current.producer_epoch if names_itself else NO_PRODUCER_EPOCH
        if current.is_epoch_exhausted:
            fresh = replace(
                fresh,
                producer_id=self._take_producer_id(),
                producer_epoch=0,
                previous_producer_id=current.producer_id,
            )
        else:
            fresh = replace(fresh, producer_epoch=current.producer_epoch + 1)
        return self._init_with(fresh, last_epoch)

    def _init_with(
        self, fresh: Transaction, last_epoch: int
    ) -> CoordinatorResult[InitProducerIdResponse]:
        self._remember_epoch(fresh, last_epoch)
        return CoordinatorResult(
            records=[self._record(fresh)],
            response=InitProducerIdResponse(
                producer_id=fresh.producer_id, producer_epoch=fresh.producer_epoch
            ),
        )

    # How a transaction ends

    def _decide(
        self,
        current: Transaction,
        committed: bool,
        now_ms: int,
        *,
        client_transaction_version: int,
    ) -> CoordinatorResult[EndTxnResponse]:
        """Ends an ongoing transaction, or (v2) one that has no partitions."""
        raises_epoch = client_transaction_version >= 2
        decided = replace(
            current,
            status=_prepared_status(committed),
            last_update_ms=now_ms,
            client_transaction_version=client_transaction_version,
        )
        if raises_epoch:
            next_id = self._take_producer_id() if current.is_epoch_exhausted else NO_PRODUCER_ID
            decided = replace(
                decided, producer_epoch=current.producer_epoch + 1, next_producer_id=next_id
            )
        completed = _completed(decided, now_ms)
        if raises_epoch:
            self._remember_epoch(completed, current.producer_epoch)
        response = _ended(completed)
        if current.status is not TransactionStatus.ONGOING:
            completed = replace(completed, start_ms=now_ms)
            return CoordinatorResult(records=[self._record(completed)], response=response)
        return CoordinatorResult(
            records=[self._record(decided)], response=response, effects=[_markers(decided)]
        )

    def _abort(self, current: Transaction, now_ms: int) -> CoordinatorResult[Any]:
        """Rolls an ongoing transaction back without its producer, whose epoch is over by that.

        In transactions v2 its own abort still succeeds and goes on with the new epoch. The last
        epoch is given to nobody: who had the one before it has to start anew.
        """
        is_v2 = self.options.transaction_version >= 2 and not current.is_epoch_exhausted
        aborted = replace(
            current,
            status=TransactionStatus.PREPARE_ABORT,
            producer_epoch=min(current.producer_epoch + 1, EPOCH_MAX),
            last_update_ms=now_ms,
            client_transaction_version=2 if is_v2 else 1,
        )
        return CoordinatorResult(records=[self._record(aborted)], effects=[_markers(aborted)])

    # Timers

    def _set_timer(self, current: Transaction) -> None:
        transactional_id = current.transactional_id
        if current.status is TransactionStatus.ONGOING:
            due_ms = _next_check_ms(
                current.start_ms + current.timeout_ms, self.options.abort_check_interval_ms
            )
            self._timers.schedule(transactional_id, due_ms, self._time_out(transactional_id))
        elif current.status.is_prepared:
            self._timers.cancel(transactional_id)
        else:
            due_ms = _next_check_ms(
                current.last_update_ms + self.options.transactional_id_expiration_ms,
                self.options.expiry_check_interval_ms,
            )
            self._timers.schedule(transactional_id, due_ms, self._expire(transactional_id))

    def _time_out(self, transactional_id: str) -> Callable[[int], CoordinatorResult[Any]]:
        def abort(now_ms: int) -> CoordinatorResult[Any]:
            result = self._abort(self.transactions[transactional_id], now_ms)
            again = self._time_out(transactional_id)
            result.settle = self._try_again(transactional_id, now_ms, again)
            return result

        return abort

    def _expire(self, transactional_id: str) -> Callable[[int], CoordinatorResult[Any]]:
        def remove(now_ms: int) -> CoordinatorResult[Any]:
            again = self._expire(transactional_id)
            return CoordinatorResult(
                records=[tombstone(transactional_id)],
                settle=self._try_again(transactional_id, now_ms, again),
            )

        return remove

    def _try_again(
        self, transactional_id: str, now_ms: int, action: Callable[[int], CoordinatorResult[Any]]
    ) -> Callable[[ApiError | None], None]:
        """A timer has fired and is gone: when its records are refused it has to fire again."""

        def settle(error: ApiError | None) -> None:
            if error is not None and transactional_id not in self._timers:
                self._timers.schedule(transactional_id, now_ms + _RETRY_MS, action)

        return settle

    # Small things

    def _find(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        current = self.transactions.get(transactional_id)
        if current is None:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return current

    def _record(self, transaction: Transaction) -> CoordinatorRecord:
        return transaction.record(self.options.record_version)

    def _remember_epoch(self, fresh: Transaction, last_epoch: int) -> None:
        self._last_epochs[fresh.transactional_id] = _LastEpoch(
            fresh.producer_id, fresh.producer_epoch, last_epoch
        )

    def _last_epoch(self, current: Transaction) -> int:
        """The epoch before the current one, if this coordinator raised it on request."""
        last = self._last_epochs.get(current.transactional_id)
        if (
            last is None
            or last.producer_id != current.producer_id
            or last.producer_epoch != current.producer_epoch
        ):
            return NO_PRODUCER_EPOCH
        return last.last_epoch

    def _forget(self, transactional_id: str) -> None:
        self.transactions.pop(transactional_id, None)
        self._last_epochs.pop(transactional_id, None)
        self._timers.cancel(transactional_id)


def _next_check_ms(due_ms: int, interval_ms: int) -> int:
    """When what is due is noticed. All of an interval fall on one moment, and are done together."""
    return -(-due_ms // interval_ms) * interval_ms


def _prepared_status(committed: bool) -> TransactionStatus:
    return TransactionStatus.PREPARE_COMMIT if committed else TransactionStatus.PREPARE_ABORT


def _completed(decided: Transaction, now_ms: int) -> Transaction:
    """What a decided transaction becomes when all markers are written."""
    committed = decided.status is TransactionStatus.PREPARE_COMMIT
    completed = replace(
        decided,
        status=TransactionStatus.COMPLETE_COMMIT if committed else TransactionStatus.COMPLETE_ABORT,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )
    if decided.next_producer_id == NO_PRODUCER_ID:
        return completed
    return replace(
        completed,
        producer_id=decided.next_producer_id,
        producer_epoch=0,
        previous_producer_id=decided.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def _ended(completed: Transaction) -> EndTxnResponse:
    return EndTxnResponse(
        producer_id=completed.producer_id, producer_epoch=completed.producer_epoch
    )


def _markers(decided: Transaction) -> WriteMarkers:
    return WriteMarkers(
        transactional_id=decided.transactional_id,
        producer_id=decided.producer_id,
        producer_epoch=decided.producer_epoch,
        committed=decided.status is TransactionStatus.PREPARE_COMMIT,
        partitions=decided.partitions,
        transaction_version=decided.client_transaction_version,
        start_ms=decided.start_ms,
        decided_ms=decided.last_update_ms,
    )
