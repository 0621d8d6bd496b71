"""UnregisterBroker (key 64): the cluster forgets a broker that is gone for good."""

from tidelog.protocol.schema import INT16, INT32, STRING, Message, field


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    broker_id: int = field(INT32, "0+")


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
