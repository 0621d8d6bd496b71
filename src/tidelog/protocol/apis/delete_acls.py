"""DeleteAcls (key 31): access-control entries that match any of the filters are removed."""

from tidelog.protocol.schema import INT8, INT16, INT32, STRING, Array, Message, Struct, field


class DeleteAclsFilter(Struct):
    resource_type_filter: int = field(INT8, "0+")
    resource_name_filter: str | None = field(STRING, "0+", nullable="0+")
    pattern_type_filter: int = field(INT8, "1+", default=3)
    principal_filter: str | None = field(STRING, "0+", nullable="0+")
    host_filter: str | None = field(STRING, "0+", nullable="0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


class DeleteAclsRequest(Message, api_key=31, versions="0-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = field(Array(DeleteAclsFilter), "0+")


class DeleteAclsMatchingAcl(Struct):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    pattern_type: int = field(INT8, "1+", default=3)
    principal: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


class DeleteAclsFilterResult(Struct):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = field(Array(DeleteAclsMatchingAcl), "0+")


class DeleteAclsResponse(Message, api_key=31, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+")
    filter_results: list[DeleteAclsFilterResult] = field(Array(DeleteAclsFilterResult), "0+")
