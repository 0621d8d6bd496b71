"""Offsets as Spark and its users write them: ranges, positions, and JSON by topic and partition.

In JSON, and in Spark's checkpoints, offsets have the shape of Spark's Kafka source:
`{"orders": {"0": 23, "1": 42}}`. Where a position is asked for, -2 stands for the earliest offset
and -1 for the latest.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import OptionError

EARLIEST = -2
LATEST = -1
INT64_MAX = 2**63 - 1

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition from `start` up to and without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """How many offsets it spans; compaction and transactions may leave fewer records."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The earliest or the latest offset of every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; -1 and -2 are the latest and the earliest."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """In every partition the first record that is not older than this."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """In each partition the first record that is not older than its timestamp."""

    timestamps_ms: Offsets


Position = Everywhere | AtOffsets | AtTimestamp | AtTimestamps


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """As Spark keeps them, always in the same order: Spark compares the texts."""
    by_topic: dict[str, dict[str, int]] = {}
    for name in sorted(offsets):
        by_topic.setdefault(name.topic, {})[str(name.partition)] = offsets[name]
    return by_topic


def offsets_from_json(by_topic: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Back from what `offsets_to_json` gave."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in by_topic.items()
        for partition, offset in partitions.items()
    }


def parse_offsets(option: str, text: str, lowest: int) -> Offsets:
    """The value of an option like `{"orders": {"0": 23, "1": -1}}`."""
    offsets: Offsets = {}
    for topic, partitions in _object(option, text).items():
        if not isinstance(partitions, dict):
            raise _malformed(option, text, f"{topic!r} has no object of partitions")
        for partition, offset in partitions.items():
            if not partition.isdecimal():
                raise _malformed(option, text, f"{partition!r} is no partition number")
            is_number = isinstance(offset, int) and not isinstance(offset, bool)
            if not is_number or not lowest <= offset <= INT64_MAX:
                raise _malformed(
                    option, text, f"{offset!r} for {topic}-{partition} is no number from {lowest}"
                )
            offsets[TopicPartition(topic, int(partition))] = offset
    if not offsets:
        raise _malformed(option, text, "it names no partition")
    return offsets


def parse_partitions(option: str, text: str) -> frozenset[TopicPartition]:
    """The value of an option like `{"orders": [0, 1]}`."""
    names = set()
    for topic, partitions in _object(option, text).items():
        if not isinstance(partitions, list):
            raise _malformed(option, text, f"{topic!r} has no list of partitions")
        for partition in partitions:
            if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
                raise _malformed(option, text, f"{partition!r} is no partition number")
            names.add(TopicPartition(topic, partition))
    if not names:
        raise _malformed(option, text, "it names no partition")
    return frozenset(names)


def written(names: Iterable[TopicPartition]) -> str:
    """Partitions for the text of an error."""
    return ", ".join(str(name) for name in sorted(names)) or "none"


def _object(option: str, text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise _malformed(option, text, str(error)) from error
    if not isinstance(parsed, dict):
        raise _malformed(option, text, "it is no JSON object by topic")
    return parsed


def _malformed(option: str, text: str, problem: str) -> OptionError:
    return OptionError(f"option {option}={text!r}: {problem}")
