"""FetchSnapshot (key 59): read a part of a snapshot of the metadata from the quorum's leader."""

from tidelog.protocol.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Array,
    Message,
    Struct,
    field,
)


class SnapshotId(Struct):
    end_offset: int = field(INT64, "0+")
    epoch: int = field(INT32, "0+")


class PartitionRequest(Struct):
    partition: int = field(INT32, "0+")
    current_leader_epoch: int = field(INT32, "0+")
    snapshot_id: SnapshotId = field(SnapshotId, "0+")
    position: int = field(INT64, "0+")
    replica_directory_id: bytes = field(UUID, "1+", tag=0, tagged="1+")


class TopicRequest(Struct):
    name: str = field(STRING, "0+")
    partitions: list[PartitionRequest] = field(Array(PartitionRequest), "0+")


class FetchSnapshotRequest(Message, api_key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+", default=None, tag=0, tagged="0+")
    replica_id: int = field(INT32, "0+", default=-1)
    max_bytes: int = field(INT32, "0+", default=2**31 - 1)
    topics: list[TopicRequest] = field(Array(TopicRequest), "0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")


class PartitionData(Struct):
    index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    snapshot_id: SnapshotId = field(SnapshotId, "0+")
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "0+", tag=0, tagged="0+")
    size: int = field(INT64, "0+")
    position: int = field(INT64, "0+")
    unaligned_records: memoryview | bytes | bytearray = field(RECORDS, "0+")


class TopicData(Struct):
    name: str = field(STRING, "0+")
    partitions: list[PartitionData] = field(Array(PartitionData), "0+")


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class FetchSnapshotResponse(Message, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    topics: list[TopicData] = field(Array(TopicData), "0+")
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), "1+", tag=0, tagged="1+")
