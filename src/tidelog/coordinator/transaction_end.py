"""Whether a producer may end its transaction, by the state that it is in.

Both checks return True when there is something to decide, False when the request repeats one that
was carried out, and raise ApiError with Kafka's code otherwise.

In the old flow a producer keeps its epoch, so only the epoch of now is taken:

    Ongoing          decide
    CompleteCommit   a commit repeats, an abort is INVALID_TXN_STATE
    CompleteAbort    an abort repeats, a commit is INVALID_TXN_STATE
    Empty            INVALID_TXN_STATE

In transactions v2 each end raises the epoch, so a retry names one epoch less. An abort is taken
even where nothing was written: a producer that does not know whether its first write arrived aborts
to be sure, and has a new epoch then.

                     abort, retry   abort, now   commit, retry    commit, now
    Ongoing          fenced         decide       fenced           decide
    CompleteCommit   invalid        decide       repeat           invalid
    CompleteAbort    repeat         decide       fenced           invalid
    Empty            fenced         decide       fenced           invalid

A commit at the epoch before an abort is always the victim of an abort by the coordinator: Kafka up
to 4.3 calls it invalid, which clients take for fatal, and later versions fence it (KAFKA-20785).
"""

from __future__ import annotations

from tidelog.coordinator.transaction import (
    CLIENT_EPOCH_MAX,
    Transaction,
    TransactionStatus,
)
from tidelog.protocol.apis.end_txn import EndTxnRequest
from tidelog.protocol.errors import ApiError, ErrorCode


def check_end_v1(current: Transaction, request: EndTxnRequest) -> bool:
    check_producer(current, request.producer_id, request.producer_epoch)
    if current.status.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.status is TransactionStatus.ONGOING:
        return True
    if not current.status.is_complete or _was_committed(current) != request.committed:
        raise _invalid_state(current)
    return False


def check_end_v2(current: Transaction, request: EndTxnRequest) -> bool:
    # First of all, for the producer may use the id and epoch that the end in progress gives it.
    if current.status.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    follows_overflow = (
        current.previous_producer_id == request.producer_id
        and request.producer_epoch == CLIENT_EPOCH_MAX
        and current.producer_epoch == 0
    )
    if not follows_overflow:
        _check_producer_id(current, request.producer_id)
    is_next_epoch = follows_overflow or current.producer_epoch == request.producer_epoch + 1
    is_retry = (
        is_next_epoch and current.status.is_complete and current.client_transaction_version >= 2
    )
    if not is_retry:
        check_epoch(current, request.producer_epoch)
        if request.committed and current.status is not TransactionStatus.ONGOING:
            raise _invalid_state(current)
        return True
    if _was_committed(current) == request.committed:
        return False
    if request.committed:
        raise ApiError(
            ErrorCode.PRODUCER_FENCED, "the coordinator has aborted the transaction before"
        )
    raise _invalid_state(current)


def check_producer(current: Transaction, producer_id: int, producer_epoch: int) -> None:
    _check_producer_id(current, producer_id)
    check_epoch(current, producer_epoch)


def _check_producer_id(current: Transaction, producer_id: int) -> None:
    if current.producer_id != producer_id:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"the transactional id belongs to producer {current.producer_id}, not {producer_id}",
        )


def check_epoch(current: Transaction, producer_epoch: int) -> None:
    if current.producer_epoch != producer_epoch:
        raise ApiError(
            ErrorCode.PRODUCER_FENCED,
            f"the epoch is {current.producer_epoch}, not {producer_epoch}",
        )


def _was_committed(current: Transaction) -> bool:
    return current.status is TransactionStatus.COMPLETE_COMMIT


def _invalid_state(current: Transaction) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_TXN_STATE, f"the transaction is in state {current.status.label}"
    )
