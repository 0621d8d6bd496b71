"""OffsetCommit (key 8): a group stores how far it has read.

Version 10 names topics by id. Versions 0 and 1 are of the time before broker-side retention;
Kafka 4 starts at 2.
"""

from tidelog.protocol.schema import INT16, INT32, INT64, STRING, UUID, Array, Message, Struct, field


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32, "0+")
    committed_offset: int = field(INT64, "0+")
    committed_leader_epoch: int = field(INT32, "6+", default=-1)
    commit_timestamp: int = field(INT64, "1", default=-1)
    committed_metadata: str | None = field(STRING, "0+", nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = field(STRING, "0-9")
    topic_id: bytes = field(UUID, "10+")
    partitions: list[OffsetCommitRequestPartition] = field(
        Array(OffsetCommitRequestPartition), "0+"
    )


class OffsetCommitRequest(Message, api_key=8, versions="0-10", flexible="8+"):
    group_id: str = field(STRING, "0+")
    generation_id_or_member_epoch: int = field(INT32, "1+", default=-1)
    member_id: str = field(STRING, "1+")
    group_instance_id: str | None = field(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = field(INT64, "2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = field(Array(OffsetCommitRequestTopic), "0+")


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class OffsetCommitResponseTopic(Struct):
    name: str = field(STRING, "0-9")
    topic_id: bytes = field(UUID, "10+")
    partitions: list[OffsetCommitResponsePartition] = field(
        Array(OffsetCommitResponsePartition), "0+"
    )


class OffsetCommitResponse(Message, api_key=8, versions="0-10", flexible="8+"):
    throttle_time_ms: int = field(INT32, "3+")
    topics: list[OffsetCommitResponseTopic] = field(Array(OffsetCommitResponseTopic), "0+")
