"""FindCoordinator (key 10): who coordinates a group or a transactional id.

From version 4 on one request asks for many keys.
"""

from tidelog.protocol.schema import INT8, INT16, INT32, STRING, Array, Message, Struct, field


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: str = field(STRING, "0-3")
    key_type: int = field(INT8, "1+")
    coordinator_keys: list[str] = field(Array(STRING), "4+")


class Coordinator(Struct):
    key: str = field(STRING, "4+")
    node_id: int = field(INT32, "4+")
    host: str = field(STRING, "4+")
    port: int = field(INT32, "4+")
    error_code: int = field(INT16, "4+")
    error_message: str | None = field(STRING, "4+", nullable="4+", default=None)


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(INT32, "1+")
    error_code: int = field(INT16, "0-3")
    error_message: str | None = field(STRING, "1-3", nullable="1-3", default=None)
    node_id: int = field(INT32, "0-3")
    host: str = field(STRING, "0-3")
    port: int = field(INT32, "0-3")
    coordinators: list[Coordinator] = field(Array(Coordinator), "4+")
