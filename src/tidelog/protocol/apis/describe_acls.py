"""DescribeAcls (key 29): access-control entries that match a filter."""

from tidelog.protocol.schema import INT8, INT16, INT32, STRING, Array, Message, Struct, field


class DescribeAclsRequest(Message, api_key=29, versions="0-3", flexible="2+"):
    resource_type_filter: int = field(INT8, "0+")
    resource_name_filter: str | None = field(STRING, "0+", nullable="0+")
    pattern_type_filter: int = field(INT8, "1+", default=3)
    principal_filter: str | None = field(STRING, "0+", nullable="0+")
    host_filter: str | None = field(STRING, "0+", nullable="0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


class AclDescription(Struct):
    principal: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


class DescribeAclsResource(Struct):
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    pattern_type: int = field(INT8, "1+", default=3)
    acls: list[AclDescription] = field(Array(AclDescription), "0+")


class DescribeAclsResponse(Message, api_key=29, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    resources: list[DescribeAclsResource] = field(Array(DescribeAclsResource), "0+")
