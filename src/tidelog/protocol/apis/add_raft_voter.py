"""AddRaftVoter (key 80): one more voter for the quorum of the metadata."""

from tidelog.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    Array,
    Message,
    Struct,
    field,
)


class Listener(Struct):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")


class AddRaftVoterRequest(Message, api_key=80, versions="0-1", flexible="0+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+")
    timeout_ms: int = field(INT32, "0+")
    voter_id: int = field(INT32, "0+")
    voter_directory_id: bytes = field(UUID, "0+")
    listeners: list[Listener] = field(Array(Listener), "0+")
    ack_when_committed: bool = field(BOOL, "1+", default=True)


class AddRaftVoterResponse(Message, api_key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
