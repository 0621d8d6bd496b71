"""CreateTopics (key 19): new topics, with a count of partitions or a placement of replicas."""

from tidelog.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    field,
)


class CreatableReplicaAssignment(Struct):
    partition_index: int = field(INT32, "0+")
    broker_ids: list[int] = field(Array(INT32), "0+")


class CreatableTopicConfig(Struct):
    name: str = field(STRING, "0+")
    value: str | None = field(STRING, "0+", nullable="0+", default=None)


class CreatableTopic(Struct):
    name: str = field(STRING, "0+")
    num_partitions: int = field(INT32, "0+")
    replication_factor: int = field(INT16, "0+")
    assignments: list[CreatableReplicaAssignment] = field(Array(CreatableReplicaAssignment), "0+")
    configs: list[CreatableTopicConfig] = field(Array(CreatableTopicConfig), "0+")


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = field(Array(CreatableTopic), "0+")
    timeout_ms: int = field(INT32, "0+", default=60000)
    validate_only: bool = field(BOOL, "1+")


class CreatableTopicConfigs(Struct):
    name: str = field(STRING, "5+")
    value: str | None = field(STRING, "5+", nullable="5+", default=None)
    read_only: bool = field(BOOL, "5+")
    config_source: int = field(INT8, "5+", default=-1)
    is_sensitive: bool = field(BOOL, "5+")


class CreatableTopicResult(Struct):
    name: str = field(STRING, "0+")
    topic_id: bytes = field(UUID, "7+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "1+", nullable="0+", default=None)
    topic_config_error_code: int = field(INT16, "5+", tag=0, tagged="5+")
    num_partitions: int = field(INT32, "5+", default=-1)
    replication_factor: int = field(INT16, "5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field(
        Array(CreatableTopicConfigs), "5+", nullable="5+"
    )


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int = field(INT32, "2+")
    topics: list[CreatableTopicResult] = field(Array(CreatableTopicResult), "0+")
