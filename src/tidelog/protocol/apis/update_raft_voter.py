"""UpdateRaftVoter (key 82): a voter tells the leader its endpoints and the versions it supports."""

from tidelog.protocol.schema import (
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


class KRaftVersionFeature(Struct):
    min_supported_version: int = field(INT16, "0+")
    max_supported_version: int = field(INT16, "0+")


class UpdateRaftVoterRequest(Message, api_key=82, versions="0", flexible="0+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+")
    current_leader_epoch: int = field(INT32, "0+")
    voter_id: int = field(INT32, "0+")
    voter_directory_id: bytes = field(UUID, "0+")
    listeners: list[Listener] = field(Array(Listener), "0+")
    kraft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature, "0+")


class CurrentLeader(Struct):
    leader_id: int = field(INT32, "0+", default=-1)
    leader_epoch: int = field(INT32, "0+", default=-1)
    host: str = field(STRING, "0+")
    port: int = field(INT32, "0+")


class UpdateRaftVoterResponse(Message, api_key=82, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    current_leader: CurrentLeader = field(CurrentLeader, "0+", tag=0, tagged="0+")
