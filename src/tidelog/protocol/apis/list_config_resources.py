"""ListConfigResources (key 74): names of the resources of given types that have a configuration.

Version 0 knew client-metrics resources only.
"""

from tidelog.protocol.schema import INT8, INT16, INT32, STRING, Array, Message, Struct, field


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = field(Array(INT8), "1+")


class ConfigResource(Struct):
    resource_name: str = field(STRING, "0+")
    resource_type: int = field(INT8, "1+", default=16)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    config_resources: list[ConfigResource] = field(Array(ConfigResource), "0+")
