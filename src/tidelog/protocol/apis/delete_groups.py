"""DeleteGroups (key 42): groups without members are removed with their offsets."""

from tidelog.protocol.schema import INT16, INT32, STRING, Array, Message, Struct, field


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = field(Array(STRING), "0+")


class DeletableGroupResult(Struct):
    group_id: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+")
    results: list[DeletableGroupResult] = field(Array(DeletableGroupResult), "0+")
