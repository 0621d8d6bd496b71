"""DeleteRecords (key 21): move the start of a log forward."""

from tidelog.protocol.schema import INT16, INT32, INT64, STRING, Array, Message, Struct, field


class DeleteRecordsPartition(Struct):
    partition_index: int = field(INT32, "0+")
    offset: int = field(INT64, "0+")


class DeleteRecordsTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[DeleteRecordsPartition] = field(Array(DeleteRecordsPartition), "0+")


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = field(Array(DeleteRecordsTopic), "0+")
    timeout_ms: int = field(INT32, "0+")


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = field(INT32, "0+")
    low_watermark: int = field(INT64, "0+")
    error_code: int = field(INT16, "0+")


class DeleteRecordsTopicResult(Struct):
    name: str = field(STRING, "0+")
    partitions: list[DeleteRecordsPartitionResult] = field(
        Array(DeleteRecordsPartitionResult), "0+"
    )


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+")
    topics: list[DeleteRecordsTopicResult] = field(Array(DeleteRecordsTopicResult), "0+")
