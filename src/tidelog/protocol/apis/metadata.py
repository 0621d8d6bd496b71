"""Metadata (key 3): brokers, topics and the leaders of partitions.

All topics are asked for with an empty list in version 0 and with null from version 1 on.
"""

from tidelog.protocol.schema import BOOL, INT16, INT32, STRING, UUID, Array, Message, Struct, field

# What the field says when the operations were not asked for.
AUTHORIZED_OPERATIONS_OMITTED = -(2**31)


class MetadataRequestTopic(Struct):
    topic_id: bytes = field(UUID, "10+")
    name: str | None = field(STRING, "0+", nullable="10+")


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = field(
        Array(MetadataRequestTopic), "0+", nullable="1+"
    )
    allow_auto_topic_creation: bool = field(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = field(BOOL, "8-10")
    include_topic_authorized_operations: bool = field(BOOL, "8+")


class MetadataResponseBroker(Struct):
    node_id: int = field(INT32, "0+")
    host: str = field(STRING, "0+")
    port: int = field(INT32, "0+")
    rack: str | None = field(STRING, "1+", nullable="1+", default=None)


class MetadataResponsePartition(Struct):
    error_code: int = field(INT16, "0+")
    partition_index: int = field(INT32, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "7+", default=-1)
    replica_nodes: list[int] = field(Array(INT32), "0+")
    isr_nodes: list[int] = field(Array(INT32), "0+")
    offline_replicas: list[int] = field(Array(INT32), "5+")


class MetadataResponseTopic(Struct):
    error_code: int = field(INT16, "0+")
    name: str | None = field(STRING, "0+", nullable="12+")
    topic_id: bytes = field(UUID, "10+")
    is_internal: bool = field(BOOL, "1+")
    partitions: list[MetadataResponsePartition] = field(Array(MetadataResponsePartition), "0+")
    topic_authorized_operations: int = field(INT32, "8+", default=AUTHORIZED_OPERATIONS_OMITTED)


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = field(INT32, "3+")
    brokers: list[MetadataResponseBroker] = field(Array(MetadataResponseBroker), "0+")
    cluster_id: str | None = field(STRING, "2+", nullable="2+", default=None)
    controller_id: int = field(INT32, "1+", default=-1)
    topics: list[MetadataResponseTopic] = field(Array(MetadataResponseTopic), "0+")
    cluster_authorized_operations: int = field(INT32, "8-10", default=AUTHORIZED_OPERATIONS_OMITTED)
    error_code: int = field(INT16, "13+")
