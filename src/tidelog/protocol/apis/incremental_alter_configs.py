"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from single settings."""

from tidelog.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Array, Message, Struct, field


class AlterableConfig(Struct):
    name: str = field(STRING, "0+")
    config_operation: int = field(INT8, "0+")
    value: str | None = field(STRING, "0+", nullable="0+", default=None)


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    configs: list[AlterableConfig] = field(Array(AlterableConfig), "0+")


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource), "0+")
    validate_only: bool = field(BOOL, "0+")


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32, "0+")
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse), "0+")
