"""InitProducerId (key 22): the id and epoch of an idempotent or transactional producer."""

from tidelog.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, field


class InitProducerIdRequest(Message, api_key=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    transaction_timeout_ms: int = field(INT32, "0+")
    producer_id: int = field(INT64, "3+", default=-1)
    producer_epoch: int = field(INT16, "3+", default=-1)
    enable_2pc: bool = field(BOOL, "6+")
    keep_prepared_txn: bool = field(BOOL, "6+")


class InitProducerIdResponse(Message, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    producer_id: int = field(INT64, "0+", default=-1)
    producer_epoch: int = field(INT16, "0+")
    ongoing_txn_producer_id: int = field(INT64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = field(INT16, "6+", default=-1)
