"""What is known of one transactional id, as its newest record says it.

The states and the ways between them:

    Empty ──▶ Ongoing ──▶ PrepareCommit ──▶ CompleteCommit ──▶ Ongoing (the next transaction)
                 │                                    └──────▶ Empty   (the producer started anew)
                 └─────▶ PrepareAbort ──▶ CompleteAbort ──▶ the same two

A prepared transaction is decided: its markers are written until all partitions have theirs, by
whichever coordinator comes to load the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tidelog.coordinator.records.transaction import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from tidelog.coordinator.shard import CoordinatorRecord
from tidelog.protocol.topic_partition import TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
EPOCH_MAX = 32767
# Clients never get the last epoch: the coordinator needs one more to fence them with.
CLIENT_EPOCH_MAX = EPOCH_MAX - 1


class TransactionStatus(IntEnum):
    """The state of a transactional id, by its number in the log; Dead is never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def label(self) -> str:
        """Kafka's name for it, as DescribeTransactions and ListTransactions show it."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)


STATUS_BY_LABEL = {status.label: status for status in TransactionStatus}


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id: its producer and the state of its current or last transaction.

    client_transaction_version: 2 when the client that last changed the state uses transactions v2,
        where every end of a transaction raises the epoch.
    previous_producer_id, next_producer_id: before and after a change of producer id, else -1.
    start_ms: when the first partition was added; -1 before that.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: TransactionStatus
    last_update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= CLIENT_EPOCH_MAX

    def record(self, value_version: int) -> CoordinatorRecord:
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self.partitions):
            topics.setdefault(topic, []).append(partition)
        # Kafka writes null for a transactional id that has no transaction.
        has_none = self.status is TransactionStatus.EMPTY
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=int(self.status),
            transaction_partitions=None
            if has_none
            else [PartitionsSchema(topic=name, partition_ids=ids) for name, ids in topics.items()],
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_transaction_version,
        )
        key = TransactionLogKey(transactional_id=self.transactional_id)
        return CoordinatorRecord(key, value, value_version)


def from_record(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    """The state that a record holds."""
    return Transaction(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        status=TransactionStatus(value.transaction_status),
        last_update_ms=value.transaction_last_update_timestamp_ms,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_transaction_version=value.client_transaction_version,
    )


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)
