"""ControllerRegistration (key 70): a controller process tells the active controller what it is."""

from tidelog.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    Array,
    Message,
    Struct,
    field,
)


class ControllerListener(Struct):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")
    security_protocol: int = field(INT16, "0+")


class ControllerFeature(Struct):
    name: str = field(STRING, "0+")
    min_supported_version: int = field(INT16, "0+")
    max_supported_version: int = field(INT16, "0+")


class ControllerRegistrationRequest(Message, api_key=70, versions="0", flexible="0+"):
    controller_id: int = field(INT32, "0+")
    incarnation_id: bytes = field(UUID, "0+")
    zk_migration_ready: bool = field(BOOL, "0+")
    listeners: list[ControllerListener] = field(Array(ControllerListener), "0+")
    features: list[ControllerFeature] = field(Array(ControllerFeature), "0+")


class ControllerRegistrationResponse(Message, api_key=70, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
