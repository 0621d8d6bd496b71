"""ListPartitionReassignments (key 46): partitions whose replicas are on the move."""

from tidelog.protocol.schema import INT16, INT32, STRING, Array, Message, Struct, field


class ListPartitionReassignmentsTopics(Struct):
    name: str = field(STRING, "0+")
    partition_indexes: list[int] = field(Array(INT32), "0+")


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    timeout_ms: int = field(INT32, "0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        Array(ListPartitionReassignmentsTopics), "0+", nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = field(INT32, "0+")
    replicas: list[int] = field(Array(INT32), "0+")
    adding_replicas: list[int] = field(Array(INT32), "0+")
    removing_replicas: list[int] = field(Array(INT32), "0+")


class OngoingTopicReassignment(Struct):
    name: str = field(STRING, "0+")
    partitions: list[OngoingPartitionReassignment] = field(
        Array(OngoingPartitionReassignment), "0+"
    )


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    topics: list[OngoingTopicReassignment] = field(Array(OngoingTopicReassignment), "0+")
