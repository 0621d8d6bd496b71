"""ListTransactions (key 66): the transactions this broker coordinates, filtered by state, producer,
age (version 1) and pattern of the transactional id (version 2).
"""

from tidelog.protocol.schema import INT16, INT32, INT64, STRING, Array, Message, Struct, field


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[str] = field(Array(STRING), "0+")
    producer_id_filters: list[int] = field(Array(INT64), "0+")
    duration_filter: int = field(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = field(STRING, "2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: str = field(STRING, "0+")
    producer_id: int = field(INT64, "0+")
    transaction_state: str = field(STRING, "0+")


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    unknown_state_filters: list[str] = field(Array(STRING), "0+")
    transaction_states: list[TransactionState] = field(Array(TransactionState), "0+")
