"""CreateAcls (key 30): access-control entries are added."""

from tidelog.protocol.schema import INT8, INT16, INT32, STRING, Array, Message, Struct, field


class AclCreation(Struct):
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    resource_pattern_type: int = field(INT8, "1+", default=3)
    principal: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


class CreateAclsRequest(Message, api_key=30, versions="0-3", flexible="2+"):
    creations: list[AclCreation] = field(Array(AclCreation), "0+")


class AclCreationResult(Struct):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class CreateAclsResponse(Message, api_key=30, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+")
    results: list[AclCreationResult] = field(Array(AclCreationResult), "0+")
