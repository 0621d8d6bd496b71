"""AlterPartition (key 56): a leader proposes other in-sync sets to the controller."""

from tidelog.protocol.schema import INT8, INT16, INT32, INT64, UUID, Array, Message, Struct, field


class BrokerState(Struct):
    broker_id: int = field(INT32, "3+")
    broker_epoch: int = field(INT64, "3+", default=-1)


class AlterPartitionRequestPartition(Struct):
    partition_index: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    new_isr: list[int] = field(Array(INT32), "0-2")
    new_isr_with_epochs: list[BrokerState] = field(Array(BrokerState), "3+")
    leader_recovery_state: int = field(INT8, "1+")
    partition_epoch: int = field(INT32, "0+")


class AlterPartitionRequestTopic(Struct):
    topic_id: bytes = field(UUID, "2+")
    partitions: list[AlterPartitionRequestPartition] = field(
        Array(AlterPartitionRequestPartition), "0+"
    )


class AlterPartitionRequest(Message, api_key=56, versions="2-3", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+", default=-1)
    topics: list[AlterPartitionRequestTopic] = field(Array(AlterPartitionRequestTopic), "0+")


class AlterPartitionResponsePartition(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    isr: list[int] = field(Array(INT32), "0+")
    leader_recovery_state: int = field(INT8, "1+")
    partition_epoch: int = field(INT32, "0+")


class AlterPartitionResponseTopic(Struct):
    topic_id: bytes = field(UUID, "2+")
    partitions: list[AlterPartitionResponsePartition] = field(
        Array(AlterPartitionResponsePartition), "0+"
    )


class AlterPartitionResponse(Message, api_key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    topics: list[AlterPartitionResponseTopic] = field(Array(AlterPartitionResponseTopic), "0+")
