"""AlterPartitionReassignments (key 45): move partitions to other replicas; null cancels a move."""

from tidelog.protocol.schema import BOOL, INT16, INT32, STRING, Array, Message, Struct, field


class ReassignablePartition(Struct):
    partition_index: int = field(INT32, "0+")
    replicas: list[int] | None = field(Array(INT32), "0+", nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[ReassignablePartition] = field(Array(ReassignablePartition), "0+")


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = field(INT32, "0+", default=60000)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = field(Array(ReassignableTopic), "0+")


class ReassignablePartitionResponse(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class ReassignableTopicResponse(Struct):
    name: str = field(STRING, "0+")
    partitions: list[ReassignablePartitionResponse] = field(
        Array(ReassignablePartitionResponse), "0+"
    )


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = field(Array(ReassignableTopicResponse), "0+")
