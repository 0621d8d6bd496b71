"""The names of partition directories, which are Kafka's."""

from __future__ import annotations

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import random_uuid

DELETE_SUFFIX = "-delete"
METADATA_LOG = "__cluster_metadata-0"  # the controller quorum's log, which is not the store's
_NAME_BYTES_MAX = 255
_OTHER_SUFFIXES = ("-future", "-stray")


def partition_directory_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def deleted_directory_name(topic_partition: TopicPartition) -> str:
    """A name for a partition that waits to be removed; a long topic name is cut to make it fit."""
    suffix = f".{random_uuid().hex()}{DELETE_SUFFIX}"
    return partition_directory_name(topic_partition)[: _NAME_BYTES_MAX - len(suffix)] + suffix


def is_deleted_directory(name: str) -> bool:
    return name.endswith(DELETE_SUFFIX) and "." in name


def was_directory_of(deleted_name: str, topic_partition: TopicPartition) -> bool:
    """Whether a deleted directory once was this partition's, as far as its name tells."""
    kept = deleted_name[: -len(DELETE_SUFFIX)].rpartition(".")[0]
    name = partition_directory_name(topic_partition)
    return name == kept or (len(deleted_name) >= _NAME_BYTES_MAX and name.startswith(kept))


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Which partition a directory holds; None when its name is not that of a partition."""
    if name.endswith((*_OTHER_SUFFIXES, DELETE_SUFFIX)) or name == METADATA_LOG:
        return None
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isdecimal() or str(int(partition)) != partition:
        return None
    return TopicPartition(topic, int(partition))
