"""AssignReplicasToDirs (key 73): a broker tells in which log directories its replicas are."""

from tidelog.protocol.schema import INT16, INT32, INT64, UUID, Array, Message, Struct, field


class AssignReplicasToDirsRequestPartition(Struct):
    partition_index: int = field(INT32, "0+")


class AssignReplicasToDirsRequestTopic(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[AssignReplicasToDirsRequestPartition] = field(
        Array(AssignReplicasToDirsRequestPartition), "0+"
    )


class AssignReplicasToDirsRequestDirectory(Struct):
    id: bytes = field(UUID, "0+")
    topics: list[AssignReplicasToDirsRequestTopic] = field(
        Array(AssignReplicasToDirsRequestTopic), "0+"
    )


class AssignReplicasToDirsRequest(Message, api_key=73, versions="0", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+", default=-1)
    directories: list[AssignReplicasToDirsRequestDirectory] = field(
        Array(AssignReplicasToDirsRequestDirectory), "0+"
    )


class AssignReplicasToDirsResponsePartition(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class AssignReplicasToDirsResponseTopic(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[AssignReplicasToDirsResponsePartition] = field(
        Array(AssignReplicasToDirsResponsePartition), "0+"
    )


class AssignReplicasToDirsResponseDirectory(Struct):
    id: bytes = field(UUID, "0+")
    topics: list[AssignReplicasToDirsResponseTopic] = field(
        Array(AssignReplicasToDirsResponseTopic), "0+"
    )


class AssignReplicasToDirsResponse(Message, api_key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    directories: list[AssignReplicasToDirsResponseDirectory] = field(
        Array(AssignReplicasToDirsResponseDirectory), "0+"
    )
