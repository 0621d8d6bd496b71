"""Whether transactional records may be written: their partition has to be part of the transaction.

Otherwise a late batch could open a transaction in a partition that nobody will ever end there, and
readers of committed records would hang at it. Producers of transactions v2 add partitions by
writing to them; older ones have said so before, and here it is verified.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.coordinator.shard import Outcome
from tidelog.coordinator.transaction_shard import TransactionShard
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.transaction_coordinator import TransactionCoordinator

Errors = dict[TopicPartition, ErrorCode]

# Clients of the old flow retry these only under another name.
_RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionalAppends:
    """What the produce and the offset path ask before they write in a transaction."""

    def __init__(self, node: Node, coordinator: TransactionCoordinator) -> None:
        self._node = node
        self._coordinator = coordinator

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        implicit_add: bool,
        done: Callable[[Errors], None],
        *,
        knows_abortable: bool = False,
    ) -> None:
        """Calls `done` with the errors of the partitions that must not be written to.

        At once for partitions in which the transaction is open already, which is nearly always;
        else when the coordinator has answered. `knows_abortable`: the client knows the error
        TRANSACTION_ABORTABLE.
        """
        unknown = [
            partition
            for partition in partitions
            if not self._has_begun(partition, producer_id, producer_epoch)
        ]
        if not unknown:
            done({})
        elif implicit_add:
            self._coordinator.add_partitions(
                transactional_id,
                producer_id,
                producer_epoch,
                unknown,
                2,
                lambda code: done(_errors(unknown, _translated(code))),
            )
        elif self._node.config.transaction_partition_verification_enable:
            self._ask(transactional_id, producer_id, producer_epoch, unknown, knows_abortable, done)
        else:
            done({})

    def _has_begun(self, partition: TopicPartition, producer_id: int, producer_epoch: int) -> bool:
        hosted = self._node.partitions.get(*partition)
        return hosted is not None and hosted.log.producers.has_ongoing_transaction(
            producer_id, producer_epoch
        )

    def _ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        knows_abortable: bool,
        done: Callable[[Errors], None],
    ) -> None:
        def verify(shard: TransactionShard, _now_ms: int) -> Outcome[Errors]:
            return shard.verify_partitions(
                transactional_id, producer_id, producer_epoch, partitions
            )

        def verified(errors: Errors | None, error: ApiError | None) -> None:
            if error is not None:
                code = _translated(error.code)
                if code in _RETRIABLE:
                    code = ErrorCode.NOT_ENOUGH_REPLICAS
                done(_errors(partitions, code))
                return
            assert errors is not None
            if not knows_abortable:
                for partition, code in errors.items():
                    if code is ErrorCode.TRANSACTION_ABORTABLE:
                        errors[partition] = ErrorCode.INVALID_TXN_STATE
            done({partition: code for partition, code in errors.items() if code})

        self._coordinator.submit(transactional_id, verify, verified)


def _translated(code: ErrorCode) -> ErrorCode:
    """On the produce path a fenced producer is told so by its epoch."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code


def _errors(partitions: list[TopicPartition], code: ErrorCode) -> Errors:
    return dict.fromkeys(partitions, code) if code else {}
