"""DescribeQuorum (key 55): leader, voters and observers of the metadata log."""

from tidelog.protocol.schema import (
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


class TopicRequest(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionRequest] = field(Array(PartitionRequest), "0+")


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    topics: list[TopicRequest] = field(Array(TopicRequest), "0+")


class ReplicaState(Struct):
    replica_id: int = field(INT32, "0+")
    replica_directory_id: bytes = field(UUID, "2+")
    log_end_offset: int = field(INT64, "0+")
    last_fetch_timestamp: int = field(INT64, "1+", default=-1)
    last_caught_up_timestamp: int = field(INT64, "1+", default=-1)


class PartitionData(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "2+", nullable="2+", default=None)
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    high_watermark: int = field(INT64, "0+")
    current_voters: list[ReplicaState] = field(Array(ReplicaState), "0+")
    observers: list[ReplicaState] = field(Array(ReplicaState), "0+")


class TopicData(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionData] = field(Array(PartitionData), "0+")


class Listener(Struct):
    name: str = field(STRING, "2+")
    host: str = field(STRING, "2+")
    port: int = field(UINT16, "2+")


class Node(Struct):
    node_id: int = field(INT32, "2+")
    listeners: list[Listener] = field(Array(Listener), "2+")


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "2+", nullable="2+", default=None)
    topics: list[TopicData] = field(Array(TopicData), "0+")
    nodes: list[Node] = field(Array(Node), "2+")
