"""OffsetDelete (key 47): remove committed offsets of topics a group does not subscribe to.

Never flexible: both headers and bodies keep the old encoding.
"""

from tidelog.protocol.schema import INT16, INT32, STRING, Array, Message, Struct, field


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(INT32, "0+")


class OffsetDeleteRequestTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[OffsetDeleteRequestPartition] = field(
        Array(OffsetDeleteRequestPartition), "0+"
    )


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    group_id: str = field(STRING, "0+")
    topics: list[OffsetDeleteRequestTopic] = field(Array(OffsetDeleteRequestTopic), "0+")


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class OffsetDeleteResponseTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[OffsetDeleteResponsePartition] = field(
        Array(OffsetDeleteResponsePartition), "0+"
    )


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    error_code: int = field(INT16, "0+")
    throttle_time_ms: int = field(INT32, "0+")
    topics: list[OffsetDeleteResponseTopic] = field(Array(OffsetDeleteResponseTopic), "0+")
