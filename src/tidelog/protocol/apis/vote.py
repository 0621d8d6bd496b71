"""Vote (key 52): a candidate, or one that thinks of becoming it, asks a voter of the quorum."""

from tidelog.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Message,
    Struct,
    field,
)


class PartitionRequest(Struct):
    partition_index: int = field(INT32, "0+")
    replica_epoch: int = field(INT32, "0+")
    replica_id: int = field(INT32, "0+")
    replica_directory_id: bytes = field(UUID, "1+")
    voter_directory_id: bytes = field(UUID, "1+")
    last_offset_epoch: int = field(INT32, "0+")
    last_offset: int = field(INT64, "0+")
    pre_vote: bool = field(BOOL, "2+")


class TopicRequest(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionRequest] = field(Array(PartitionRequest), "0+")


class VoteRequest(Message, api_key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    voter_id: int = field(INT32, "1+", default=-1)
    topics: list[TopicRequest] = field(Array(TopicRequest), "0+")


class PartitionData(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    vote_granted: bool = field(BOOL, "0+")


class TopicData(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionData] = field(Array(PartitionData), "0+")


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class VoteResponse(Message, api_key=52, versions="0-2", flexible="0+"):
    error_code: int = field(INT16, "0+")
    topics: list[TopicData] = field(Array(TopicData), "0+")
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), "1+", tag=0, tagged="1+")
