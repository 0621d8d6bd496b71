"""Whether transactional records may be written: their partition has to be part of the transaction.

Otherwise a late batch could open a transaction in a partition that nobody will ever end there, and
readers of committed records would hang at it. Producers of transactions v2 add partitions by
writing to them; older ones have said so before, and here it is verified.

A producer's requests follow each other closely and its records are numbered, so what comes after a
request that waits for the coordinator waits behind it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.coordinator.shard import CoordinatorResult
from tidelog.coordinator.transaction_shard import TransactionShard
from tidelog.promise import Promise
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tidelog.server.coordination.transaction_coordinator import TransactionCoordinator
    from tidelog.server.node import Node

Errors = dict[TopicPartition, ErrorCode]

# Answers of the coordinator that no producer expects from a partition: it retries under this name.
_RETRIABLE_AS = ErrorCode.NOT_ENOUGH_REPLICAS
_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(slots=True, frozen=True)
class _Verification:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: list[TopicPartition]
    implicit_add: bool
    knows_abortable: bool
    errors: Promise[Errors]


class TransactionalAppends:
    """What the produce and the offset path ask before they write in a transaction."""

    def __init__(self, node: Node, coordinator: TransactionCoordinator) -> None:
        self._node = node
        self._coordinator = coordinator
        self._queues: dict[int, deque[_Verification]] = {}

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        implicit_add: bool,
        *,
        knows_abortable: bool = False,
    ) -> Promise[Errors]:
        """The errors of the partitions that must not be written to.

        They are known at once for partitions in which the transaction is open already, which is
        nearly always; else when the coordinator has answered. `knows_abortable`: the client knows
        the error TRANSACTION_ABORTABLE.
        """
        call = _Verification(
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
            implicit_add,
            knows_abortable,
            Promise(),
        )
        queue = self._queues.get(producer_id)
        if queue is None:
            self._begin(call)
        else:
            queue.append(call)
        return call.errors

    def _begin(self, call: _Verification) -> None:
        producer_id = call.producer_id
        unknown = [
            partition
            for partition in call.partitions
            if not self._has_begun(partition, producer_id, call.producer_epoch)
        ]
        if not unknown:
            call.errors.resolve({})
            return
        self._queues[producer_id] = deque()

        def finish(answered: Promise[Errors]) -> None:
            call.errors.settle_like(answered)
            self._go_on(producer_id)

        self._ask(call, unknown).when_done(finish)

    def _go_on(self, producer_id: int) -> None:
        """A producer's call is over: those behind it go on, up to the next that has to wait."""
        queue = self._queues.pop(producer_id)
        while queue:
            self._begin(queue.popleft())
            waiting = self._queues.get(producer_id)
            if waiting is not None:
                waiting.extend(queue)
                return

    def _has_begun(self, partition: TopicPartition, producer_id: int, producer_epoch: int) -> bool:
        hosted = self._node.partitions.get(*partition)
        return hosted is not None and hosted.log.producers.has_ongoing_transaction(
            producer_id, producer_epoch
        )

    def _ask(self, call: _Verification, partitions: list[TopicPartition]) -> Promise[Errors]:
        if call.implicit_add:
            added = self._coordinator.add_partitions(
                call.transactional_id, call.producer_id, call.producer_epoch, partitions, 2
            )
            return added.recover(ApiError, lambda error: _translated(error.code)).then(
                lambda code: _errors(partitions, code)
            )
        if not self._node.config.transaction_partition_verification_enable:
            return Promise.of({})

        def verify(shard: TransactionShard, _now_ms: int) -> CoordinatorResult[Errors]:
            return shard.verify_partitions(
                call.transactional_id, call.producer_id, call.producer_epoch, partitions
            )

        def as_known(errors: Errors) -> Errors:
            if not call.knows_abortable:
                for partition, code in errors.items():
                    if code is ErrorCode.TRANSACTION_ABORTABLE:
                        errors[partition] = ErrorCode.INVALID_TXN_STATE
            return {partition: code for partition, code in errors.items() if code}

        def unanswered(error: ApiError) -> Errors:
            code = _translated(error.code)
            if code is ErrorCode.CONCURRENT_TRANSACTIONS:  # the old flow does not know it here
                code = _RETRIABLE_AS
            return _errors(partitions, code)

        verified = self._coordinator.submit(call.transactional_id, verify)
        return verified.then(as_known).recover(ApiError, unanswered)


def _translated(code: ErrorCode) -> ErrorCode:
    """What the coordinator says, in the words of the produce path."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return _RETRIABLE_AS if code in _RETRIABLE else code


def _errors(partitions: list[TopicPartition], code: ErrorCode) -> Errors:
    return dict.fromkeys(partitions, code) if code else {}
