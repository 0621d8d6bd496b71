"""AlterReplicaLogDirs (key 34): move replicas between the log directories of one broker."""

from tidelog.protocol.schema import INT16, INT32, STRING, Array, Message, Struct, field


class AlterReplicaLogDirTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[int] = field(Array(INT32), "0+")


class AlterReplicaLogDir(Struct):
    path: str = field(STRING, "0+")
    topics: list[AlterReplicaLogDirTopic] = field(Array(AlterReplicaLogDirTopic), "0+")


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="0-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = field(Array(AlterReplicaLogDir), "0+")


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = field(
        Array(AlterReplicaLogDirPartitionResult), "0+"
    )


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+")
    results: list[AlterReplicaLogDirTopicResult] = field(Array(AlterReplicaLogDirTopicResult), "0+")
