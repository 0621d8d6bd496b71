"""Metadata records of topics and their partitions."""

from __future__ import annotations

from tidelog.protocol.schema import INT8, INT32, STRING, UUID, Array, Message, field

NO_LEADER = -1
NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1


class TopicRecord(Message, api_key=2, versions="0", flexible="0+"):
    name: str = field(STRING, "0+")
    topic_id: bytes = field(UUID, "0+")


class RemoveTopicRecord(Message, api_key=9, versions="0", flexible="0+"):
    """Removes the topic with all its partitions and settings."""

    topic_id: bytes = field(UUID, "0+")


class PartitionRecord(Message, api_key=3, versions="0-2", flexible="0+"):
    """A partition's whole state: at its creation, and in snapshots."""

    partition_id: int = field(INT32, "0+", default=-1)
    topic_id: bytes = field(UUID, "0+")
    replicas: list[int] = field(Array(INT32), "0+")
    isr: list[int] = field(Array(INT32), "0+")
    removing_replicas: list[int] = field(Array(INT32), "0+")
    adding_replicas: list[int] = field(Array(INT32), "0+")
    leader: int = field(INT32, "0+", default=NO_LEADER)
    leader_recovery_state: int = field(INT8, "0+", tag=0, tagged="0+")
    leader_epoch: int = field(INT32, "0+", default=-1)
    partition_epoch: int = field(INT32, "0+", default=-1)
    directories: list[bytes] = field(Array(UUID), "1+")
    eligible_leader_replicas: list[int] | None = field(
        Array(INT32), "2+", nullable="2+", default=None, tag=1, tagged="2+"
    )
    last_known_elr: list[int] | None = field(
        Array(INT32), "2+", nullable="2+", default=None, tag=2, tagged="2+"
    )


class PartitionChangeRecord(Message, api_key=5, versions="0-2", flexible="0+"):
    """What changed in a partition; None, NO_LEADER_CHANGE and NO_RECOVERY_CHANGE mean nothing.

    Every such record raises the partition epoch; one that names a leader raises the leader epoch,
    even when it names the leader of before.
    """

    partition_id: int = field(INT32, "0+", default=-1)
    topic_id: bytes = field(UUID, "0+")
    isr: list[int] | None = field(
        Array(INT32), "0+", nullable="0+", default=None, tag=0, tagged="0+"
    )
    leader: int = field(INT32, "0+", default=NO_LEADER_CHANGE, tag=1, tagged="0+")
    replicas: list[int] | None = field(
        Array(INT32), "0+", nullable="0+", default=None, tag=2, tagged="0+"
    )
    removing_replicas: list[int] | None = field(
        Array(INT32), "0+", nullable="0+", default=None, tag=3, tagged="0+"
    )
    adding_replicas: list[int] | None = field(
        Array(INT32), "0+", nullable="0+", default=None, tag=4, tagged="0+"
    )
    leader_recovery_state: int = field(INT8, "0+", default=NO_RECOVERY_CHANGE, tag=5, tagged="0+")
    directories: list[bytes] | None = field(
        Array(UUID), "1+", nullable="1+", default=None, tag=8, tagged="1+"
    )
    eligible_leader_replicas: list[int] | None = field(
        Array(INT32), "2+", nullable="2+", default=None, tag=6, tagged="2+"
    )
    last_known_elr: list[int] | None = field(
        Array(INT32), "2+", nullable="2+", default=None, tag=7, tagged="2+"
    )


class ClearElrRecord(Message, api_key=28, versions="0", flexible="0+"):
    """Empties the eligible leader replicas of a topic, or of all topics when the name is empty."""

    topic_name: str = field(STRING, "0+")
