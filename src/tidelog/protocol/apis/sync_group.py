"""SyncGroup (key 14): the leader hands in its assignment, every member takes its part."""

from tidelog.protocol.schema import BYTES, INT16, INT32, STRING, Array, Message, Struct, field


class SyncGroupRequestAssignment(Struct):
    member_id: str = field(STRING, "0+")
    assignment: bytes = field(BYTES, "0+")


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    group_id: str = field(STRING, "0+")
    generation_id: int = field(INT32, "0+")
    member_id: str = field(STRING, "0+")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    protocol_type: str | None = field(STRING, "5+", nullable="5+", default=None)
    protocol_name: str | None = field(STRING, "5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = field(Array(SyncGroupRequestAssignment), "0+")


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(INT32, "1+")
    error_code: int = field(INT16, "0+")
    protocol_type: str | None = field(STRING, "5+", nullable="5+", default=None)
    protocol_name: str | None = field(STRING, "5+", nullable="5+", default=None)
    assignment: bytes = field(BYTES, "0+")
