"""PushTelemetry (key 72): a client's metrics as OTLP bytes."""

from tidelog.protocol.schema import BOOL, BYTES, INT8, INT16, INT32, UUID, Message, field


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    client_instance_id: bytes = field(UUID, "0+")
    subscription_id: int = field(INT32, "0+")
    terminating: bool = field(BOOL, "0+")
    compression_type: int = field(INT8, "0+")
    metrics: bytes = field(BYTES, "0+")


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
