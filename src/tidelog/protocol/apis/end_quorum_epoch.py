"""EndQuorumEpoch (key 54): the leader of the quorum resigns and says who should come after it."""

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


class ReplicaInfo(Struct):
    candidate_id: int = field(INT32, "1+")
    candidate_directory_id: bytes = field(UUID, "1+")


class PartitionRequest(Struct):
    partition_index: int = field(INT32, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    preferred_successors: list[int] = field(Array(INT32), "0")
    preferred_candidates: list[ReplicaInfo] = field(Array(ReplicaInfo), "1+")


class TopicRequest(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionRequest] = field(Array(PartitionRequest), "0+")


class LeaderEndpoint(Struct):
    name: str = field(STRING, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class EndQuorumEpochRequest(Message, api_key=54, versions="0-1", flexible="1+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    topics: list[TopicRequest] = field(Array(TopicRequest), "0+")
    leader_endpoints: list[LeaderEndpoint] = field(Array(LeaderEndpoint), "1+")


class PartitionData(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")


class TopicData(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionData] = field(Array(PartitionData), "0+")


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class EndQuorumEpochResponse(Message, api_key=54, versions="0-1", flexible="1+"):
    error_code: int = field(INT16, "0+")
    topics: list[TopicData] = field(Array(TopicData), "0+")
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), "1+", tag=0, tagged="1+")
