"""Offsets of partitions in a text file, in Kafka's format.

0                       version
2                       number of lines that follow
orders 0 4711           topic, partition, offset
orders 1 815
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.files import CorruptFileError, read_file, replace_file
from tidelog.world.files import Files

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"


def write_offsets(files: Files, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces the file; durable when it returns."""
    lines = ["0", str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    replace_file(files, path, ("\n".join(lines) + "\n").encode())


def read_offsets(files: Files, path: Path) -> dict[TopicPartition, int]:
    """The offsets in the file, none when it is missing. Raises CorruptFileError."""
    if not files.exists(path):
        return {}
    lines = read_file(files, path).split(b"\n")
    try:
        version, count = int(lines[0]), int(lines[1])
        offsets = dict(_parse_line(line) for line in lines[2:] if line)
    except (ValueError, IndexError) as error:
        raise CorruptFileError(path, f"not an offset checkpoint ({error})") from error
    if version != 0 or count != len(offsets):
        raise CorruptFileError(
            path,
            f"version {version} with {len(offsets)} of {count} offsets",
        )
    return offsets


def _parse_line(line: bytes) -> tuple[TopicPartition, int]:
    topic, partition, offset = line.split()
    if int(offset) < 0:
        raise ValueError(f"offset {int(offset)}")
    return TopicPartition(topic.decode(), int(partition)), int(offset)
