"""Committed offsets in `__consumer_offsets`."""

from tidelog.protocol.schema import INT32, INT64, STRING, UUID, Message, field


class LegacyOffsetCommitKey(Message, api_key=0, versions="0"):
    group: str = field(STRING, "0+")
    topic: str = field(STRING, "0+")
    partition: int = field(INT32, "0+")


class OffsetCommitKey(Message, api_key=1, versions="0"):
    group: str = field(STRING, "0+")
    topic: str = field(STRING, "0+")
    partition: int = field(INT32, "0+")


class OffsetCommitValue(Message, api_key=1, versions="0-4", flexible="4+"):
    """Written as version 4; as version 1 when the client asked for its own retention time."""

    offset: int = field(INT64, "0+")
    leader_epoch: int = field(INT32, "3+", default=-1)
    metadata: str = field(STRING, "0+")
    commit_timestamp: int = field(INT64, "0+")
    expire_timestamp: int = field(INT64, "1", default=-1)
    topic_id: bytes = field(UUID, "4+", tag=0, tagged="4+")
