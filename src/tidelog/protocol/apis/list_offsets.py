"""ListOffsets (key 2): the offset at a time, or at a special timestamp below zero."""

from tidelog.protocol.schema import INT8, INT16, INT32, INT64, STRING, Array, Message, Struct, field


class ListOffsetsPartition(Struct):
    partition_index: int = field(INT32, "0+")
    current_leader_epoch: int = field(INT32, "4+", default=-1)
    timestamp: int = field(INT64, "0+")


class ListOffsetsTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[ListOffsetsPartition] = field(Array(ListOffsetsPartition), "0+")


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    replica_id: int = field(INT32, "0+")
    isolation_level: int = field(INT8, "2+")
    topics: list[ListOffsetsTopic] = field(Array(ListOffsetsTopic), "0+")
    timeout_ms: int = field(INT32, "10+")


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    timestamp: int = field(INT64, "1+", default=-1)
    offset: int = field(INT64, "1+", default=-1)
    leader_epoch: int = field(INT32, "4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = field(STRING, "0+")
    partitions: list[ListOffsetsPartitionResponse] = field(
        Array(ListOffsetsPartitionResponse), "0+"
    )


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = field(INT32, "2+")
    topics: list[ListOffsetsTopicResponse] = field(Array(ListOffsetsTopicResponse), "0+")
