"""LeaveGroup (key 13): members leave a group at once instead of timing out.

Up to version 2 one member leaves by its id; from version 3 a batch, static members by instance id.
"""

from tidelog.protocol.schema import INT16, INT32, STRING, Array, Message, Struct, field


class MemberIdentity(Struct):
    member_id: str = field(STRING, "3+")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    reason: str | None = field(STRING, "5+", nullable="5+", default=None)


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: str = field(STRING, "0+")
    member_id: str = field(STRING, "0-2")
    members: list[MemberIdentity] = field(Array(MemberIdentity), "3+")


class MemberResponse(Struct):
    member_id: str = field(STRING, "3+")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+")
    error_code: int = field(INT16, "3+")


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(INT32, "1+")
    error_code: int = field(INT16, "0+")
    members: list[MemberResponse] = field(Array(MemberResponse), "3+")
