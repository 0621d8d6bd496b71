"""ListGroups (key 16): the groups this broker coordinates, filtered by state and by type."""

from tidelog.protocol.schema import INT16, INT32, STRING, Array, Message, Struct, field


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = field(Array(STRING), "4+")
    types_filter: list[str] = field(Array(STRING), "5+")


class ListedGroup(Struct):
    group_id: str = field(STRING, "0+")
    protocol_type: str = field(STRING, "0+")
    group_state: str = field(STRING, "4+")
    group_type: str = field(STRING, "5+")


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(INT32, "1+")
    error_code: int = field(INT16, "0+")
    groups: list[ListedGroup] = field(Array(ListedGroup), "0+")
