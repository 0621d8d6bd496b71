"""Groups in `__consumer_offsets`: one record holds a whole classic group; a group of the consumer
protocol is spread over records per group and per member, so that a change writes only itself."""

from tidelog.protocol.schema import (
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    field,
)


class GroupMetadataKey(Message, api_key=2, versions="0"):
    group: str = field(STRING, "0+")


class MemberMetadata(Struct):
    member_id: str = field(STRING, "0+")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    client_id: str = field(STRING, "0+")
    client_host: str = field(STRING, "0+")
    rebalance_timeout: int = field(INT32, "1+", default=-1)
    session_timeout: int = field(INT32, "0+")
    subscription: bytes = field(BYTES, "0+")
    assignment: bytes = field(BYTES, "0+")


class GroupMetadataValue(Message, api_key=2, versions="0-4", flexible="4+"):
    """Written as version 3, the last one that brokers before Kafka 3.5 can read."""

    protocol_type: str = field(STRING, "0+")
    generation: int = field(INT32, "0+")
    protocol: str | None = field(STRING, "0+", nullable="0+", default=None)
    leader: str | None = field(STRING, "0+", nullable="0+", default=None)
    current_state_timestamp: int = field(INT64, "2+", default=-1)
    members: list[MemberMetadata] = field(Array(MemberMetadata), "0+")


class ConsumerGroupMetadataKey(Message, api_key=3, versions="0"):
    group_id: str = field(STRING, "0+")


class ConsumerGroupMetadataValue(Message, api_key=3, versions="0", flexible="0+"):
    epoch: int = field(INT32, "0+")
    metadata_hash: int = field(INT64, "0+", tag=0, tagged="0+")


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions="0"):
    group_id: str = field(STRING, "0+")


class PartitionMetadata(Struct):
    partition: int = field(INT32, "0+")
    racks: list[str] = field(Array(STRING), "0+")


class TopicMetadata(Struct):
    topic_id: bytes = field(UUID, "0+")
    topic_name: str = field(STRING, "0+")
    num_partitions: int = field(INT32, "0+")
    partition_metadata: list[PartitionMetadata] = field(Array(PartitionMetadata), "0+")


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, versions="0", flexible="0+"):
    """Written by Kafka up to 4.0 only; `metadata_hash` of the group took its place."""

    topics: list[TopicMetadata] = field(Array(TopicMetadata), "0+")


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions="0"):
    group_id: str = field(STRING, "0+")
    member_id: str = field(STRING, "0+")


class ClassicProtocol(Struct):
    name: str = field(STRING, "0+")
    metadata: bytes = field(BYTES, "0+")


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(INT32, "0+")
    supported_protocols: list[ClassicProtocol] = field(Array(ClassicProtocol), "0+")


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions="0", flexible="0+"):
    """`classic_member_metadata` is set for a member that speaks the classic protocol."""

    instance_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    client_id: str = field(STRING, "0+")
    client_host: str = field(STRING, "0+")
    subscribed_topic_names: list[str] = field(Array(STRING), "0+")
    subscribed_topic_regex: str | None = field(STRING, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, "0+", default=-1)
    server_assignor: str | None = field(STRING, "0+", nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, "0+", nullable="0+", default=None, tag=0, tagged="0+"
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions="0"):
    group_id: str = field(STRING, "0+")


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions="0", flexible="0+"):
    assignment_epoch: int = field(INT32, "0+")
    assignment_timestamp: int = field(INT64, "0+", tag=0, tagged="0+")


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions="0"):
    group_id: str = field(STRING, "0+")
    member_id: str = field(STRING, "0+")


class TopicPartitions(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[int] = field(Array(INT32), "0+")


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartitions] = field(Array(TopicPartitions), "0+")


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions="0"):
    group_id: str = field(STRING, "0+")
    member_id: str = field(STRING, "0+")


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions="0", flexible="0+"):
    member_epoch: int = field(INT32, "0+")
    previous_member_epoch: int = field(INT32, "0+")
    state: int = field(INT8, "0+")
    assigned_partitions: list[TopicPartitions] = field(Array(TopicPartitions), "0+")
    partitions_pending_revocation: list[TopicPartitions] = field(Array(TopicPartitions), "0+")


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions="0"):
    group_id: str = field(STRING, "0+")
    regular_expression: str = field(STRING, "0+")


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions="0", flexible="0+"):
    """The topics an expression named when it was last resolved, at which metadata version."""

    topics: list[str] = field(Array(STRING), "0+")
    version: int = field(INT64, "0+")
    timestamp: int = field(INT64, "0+")
