"""The names of partition directories, which are Kafka's, and their removal."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import random_uuid
from tidelog.storage.directories.partition_metadata import FILE_NAME as PARTITION_METADATA
from tidelog.world.files import Files

DELETE_SUFFIX = "-delete"
METADATA_LOG = "__cluster_metadata-0"  # the controller quorum's log, which is not the store's
_NAME_BYTES_MAX = 255
FUTURE_SUFFIX = "-future"  # a copy that is being made of a log in another directory
MOVED_SUFFIX = "-moved"  # a file: where the log of this name was moved from
_FUTURE_NAME = re.compile(rf".+\.[0-9a-f]{{32}}{FUTURE_SUFFIX}")
STRAY_SUFFIX = "-stray"  # a log that no topic of the metadata claims; nobody touches it
_OTHER_SUFFIXES = (FUTURE_SUFFIX, STRAY_SUFFIX)


def partition_directory_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def deleted_directory_name(topic_partition: TopicPartition, random: Random) -> str:
    """A name for a partition that waits to be removed; a long topic name is cut to make it fit."""
    return _unique_name(topic_partition, DELETE_SUFFIX, random)


def future_directory_name(topic_partition: TopicPartition, random: Random) -> str:
    return _unique_name(topic_partition, FUTURE_SUFFIX, random)


def stray_directory_name(topic_partition: TopicPartition, random: Random) -> str:
    return _unique_name(topic_partition, STRAY_SUFFIX, random)


def _unique_name(topic_partition: TopicPartition, kind: str, random: Random) -> str:
    suffix = f".{random_uuid(random).hex()}{kind}"
    return partition_directory_name(topic_partition)[: _NAME_BYTES_MAX - len(suffix)] + suffix


def moved_mark_name(topic_partition: TopicPartition) -> str:
    return partition_directory_name(topic_partition) + MOVED_SUFFIX


def parse_moved_mark(name: str) -> TopicPartition | None:
    """Which partition a mark is about; None when the name is not that of a mark."""
    if not name.endswith(MOVED_SUFFIX):
        return None
    return parse_partition_directory(name.removesuffix(MOVED_SUFFIX))


def is_future_directory(name: str) -> bool:
    return _FUTURE_NAME.fullmatch(name) is not None


def is_deleted_directory(name: str) -> bool:
    return name.endswith(DELETE_SUFFIX) and "." in name


def remove_partition_directory(files: Files, path: Path) -> None:
    """The topic id goes last: a crash may give the folder its old name back, and then a topic that
    has the same name by now must not take what is left in it for its own. Raises OSError."""
    for name in sorted(files.listdir(path), key=PARTITION_METADATA.__eq__):
        files.unlink(path / name)
    files.rmdir(path)


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
