"""Transactions in `__transaction_state`: one record holds all there is of a transactional id."""

from tidelog.coordinator.shard import RecordCodec
from tidelog.protocol.schema import INT8, INT16, INT32, INT64, STRING, Array, Message, Struct, field


class TransactionLogKey(Message, api_key=0, versions="0"):
    transactional_id: str = field(STRING, "0+")


class PartitionsSchema(Struct):
    topic: str = field(STRING, "0+")
    partition_ids: list[int] = field(Array(INT32), "0+")


class TransactionLogValue(Message, api_key=0, versions="0-1", flexible="1+"):
    """Version 0 is written while `transaction.version` is 0; version 1 has the tagged fields."""

    producer_id: int = field(INT64, "0+")
    previous_producer_id: int = field(INT64, "1+", tag=0, tagged="1+", default=-1)
    next_producer_id: int = field(INT64, "1+", tag=1, tagged="1+", default=-1)
    producer_epoch: int = field(INT16, "0+")
    transaction_timeout_ms: int = field(INT32, "0+")
    transaction_status: int = field(INT8, "0+")
    transaction_partitions: list[PartitionsSchema] | None = field(
        Array(PartitionsSchema), "0+", nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = field(INT64, "0+")
    transaction_start_timestamp_ms: int = field(INT64, "0+")
    client_transaction_version: int = field(INT16, "1+", tag=2, tagged="1+")


TRANSACTION_STATE = RecordCodec([(TransactionLogKey, TransactionLogValue)])
