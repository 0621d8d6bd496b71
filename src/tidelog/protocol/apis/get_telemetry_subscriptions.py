"""GetTelemetrySubscriptions (key 71): which metrics a client shall push, and how often."""

from tidelog.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID, Array, Message, field


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions="0", flexible="0+"):
    client_instance_id: bytes = field(UUID, "0+")


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    client_instance_id: bytes = field(UUID, "0+")
    subscription_id: int = field(INT32, "0+")
    accepted_compression_types: list[int] = field(Array(INT8), "0+")
    push_interval_ms: int = field(INT32, "0+")
    telemetry_max_bytes: int = field(INT32, "0+")
    delta_temporality: bool = field(BOOL, "0+")
    requested_metrics: list[str] = field(Array(STRING), "0+")
