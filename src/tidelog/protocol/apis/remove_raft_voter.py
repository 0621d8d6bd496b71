"""RemoveRaftVoter (key 81): one voter less for the quorum of the metadata."""

from tidelog.protocol.schema import INT16, INT32, STRING, UUID, Message, field


class RemoveRaftVoterRequest(Message, api_key=81, versions="0", flexible="0+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+")
    voter_id: int = field(INT32, "0+")
    voter_directory_id: bytes = field(UUID, "0+")


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
