"""Committed offsets of the groups of one shard, those of open transactions included.

An offset that a transaction commits is *pending* until the transaction's end marker is in the
partition: it then becomes the committed offset, unless a later commit has overtaken it, or is
forgotten. Until then a reader that asks for stable offsets is told to come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct as PackedStruct
from struct import error as struct_error
from typing import NamedTuple

from tidelog.coordinator.records.offset import OffsetCommitKey, OffsetCommitValue
from tidelog.coordinator.shard import CoordinatorRecord
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.uuids import ZERO_UUID

OFFSET_VALUE_VERSION = 4
# The one version that can say when an offset expires by its client's wish.
_EXPIRING_VALUE_VERSION = 1

_KEY_HEAD = PackedStruct(">hh")
_LENGTH = PackedStruct(">h")
_INT32 = PackedStruct(">i")
_INT64 = PackedStruct(">q")
_OFFSET_AND_EPOCH = PackedStruct(">qi")

# Version 3, with the size of the metadata in two bytes; version 4 with one more than that size as a
# varint, and behind the time the tagged fields: none, or the topic's id.
_METADATA_3_AT, _METADATA_4_AT = 16, 15
_VALUE_4_PLAIN = PackedStruct(">hqiBq19s")  # without metadata, with the topic's id
_PLAIN_SIZE, _NO_METADATA = _VALUE_4_PLAIN.size, 1
_ONE_BYTE_VARINT_MAX = 127
_NO_TAGS = b"\0"
_TOPIC_ID_TAG = b"\x01\0\x10"


_new_tuple = tuple.__new__


class CommittedOffset(NamedTuple):
    """`sequence` orders commits as the log does; -1 in `expire_ms` means by retention."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int
    sequence: int
    topic_id: bytes = ZERO_UUID
    """Zero where it was not written: by older versions, and beside a time of expiry."""


class Offsets:
    """Changes only by `replay`, `replay_bytes` and `replay_end_marker`."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._pending: dict[int, dict[tuple[str, str, int], CommittedOffset]] = {}
        self._pending_counts: dict[str, dict[tuple[str, int], int]] = {}
        self._sequence = 0
        # The table that the last offset was loaded into, and the key it is found by.
        self._last_prefix = b""
        self._last_table: dict[int, CommittedOffset] = {}
        self._last_tags = b""
        self._last_topic_id = ZERO_UUID

    def groups(self) -> Iterator[str]:
        return iter(self._committed)

    def get(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        topics = self._committed.get(group)
        if topics is None:
            return None
        partitions = topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def of_group(self, group: str) -> dict[str, dict[int, CommittedOffset]]:
        """By topic and partition; not to be changed."""
        return self._committed.get(group, {})

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        counts = self._pending_counts.get(group)
        return counts is not None and (topic, partition) in counts

    def has_pending(self, group: str) -> bool:
        return group in self._pending_counts

    def pending_of_group(self, group: str) -> list[tuple[str, int]]:
        return list(self._pending_counts.get(group, ()))

    # Records

    def commit_record(
        self, group: str, topic: str, partition: int, committed: CommittedOffset
    ) -> CoordinatorRecord:
        """`sequence` is not written: replaying the record gives it its place."""
        expires = committed.expire_ms >= 0
        return CoordinatorRecord(
            OffsetCommitKey(group=group, topic=topic, partition=partition),
            OffsetCommitValue(
                offset=committed.offset,
                leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                commit_timestamp=committed.commit_ms,
                expire_timestamp=committed.expire_ms,
                topic_id=committed.topic_id,
            ),
            _EXPIRING_VALUE_VERSION if expires else OFFSET_VALUE_VERSION,
        )

    def tombstone(self, group: str, topic: str, partition: int) -> CoordinatorRecord:
        return CoordinatorRecord(
            OffsetCommitKey(group=group, topic=topic, partition=partition), None
        )

    # Replay

    def replay(
        self,
        group: str,
        topic: str,
        partition: int,
        value: OffsetCommitValue | None,
        producer_id: int,
    ) -> None:
        if value is None:
            self._remove(group, topic, partition)
            return
        self._put(
            group,
            topic,
            partition,
            producer_id,
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )

    def replay_bytes(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Replays an offset record as it is in the log.

        Loading a partition is mostly this, so the bytes are taken apart here and the records of one
        group and topic, which come in a row, share the way to their table: about 1 µs a record
        against 10 by the generated codecs.
        """
        try:
            if (
                producer_id < 0
                and value is not None
                and (fields := self._parse_value(value)) is not None
            ):
                prefix = key[2:-4]
                if prefix != self._last_prefix:
                    group, topic, _ = _parse_key(key)
                    topics = self._committed.setdefault(group, {})
                    self._last_table = topics.setdefault(topic, {})
                    self._last_prefix = prefix
                (partition,) = _INT32.unpack_from(key, len(prefix) + 2)
                offset, leader_epoch, metadata, commit_ms, topic_id = fields
                self._sequence += 1
                self._last_table[partition] = _new_tuple(
                    CommittedOffset,
                    (offset, leader_epoch, metadata, commit_ms, -1, self._sequence, topic_id),
                )
                return
            group, topic, partition = _parse_key(key)
            version = value[1] if value is not None else -1
        except (IndexError, UnicodeDecodeError, struct_error) as error:
            raise ProtocolError(f"a malformed offset record: {error}") from error
        decoded = None if value is None else OffsetCommitValue.decode(value, version, 2)
        self.replay(group, topic, partition, decoded, producer_id)

    def _parse_value(self, value: bytes) -> tuple[int, int, str, int, bytes] | None:
        """Offset, leader epoch, metadata, time of the commit, topic id; None: of a rare shape."""
        if len(value) == _PLAIN_SIZE:
            version, offset, leader_epoch, size, commit_ms, tags = _VALUE_4_PLAIN.unpack(value)
            if version == OFFSET_VALUE_VERSION and size == _NO_METADATA and tags == self._last_tags:
                return offset, leader_epoch, "", commit_ms, self._last_topic_id
        version = value[1]
        if version == OFFSET_VALUE_VERSION:
            begin = _METADATA_4_AT
            size = value[begin - 1] - 1
            if not 0 <= size < _ONE_BYTE_VARINT_MAX:
                return None
            end = begin + size
            tags = value[end + 8 :]
            if tags == self._last_tags:
                topic_id = self._last_topic_id
            elif tags == _NO_TAGS:
                topic_id = ZERO_UUID
            elif tags.startswith(_TOPIC_ID_TAG) and len(tags) == len(_TOPIC_ID_TAG) + 16:
                # All the offsets in a topic share one object.
                self._last_tags = tags
                topic_id = self._last_topic_id = tags[len(_TOPIC_ID_TAG) :]
            else:
                return None
        elif version == 3:
            begin = _METADATA_3_AT
            (size,) = _LENGTH.unpack_from(value, begin - 2)
            if size < 0:
                return None
            end = begin + size
            topic_id = ZERO_UUID
        else:
            return None
        offset, leader_epoch = _OFFSET_AND_EPOCH.unpack_from(value, 2)
        (commit_ms,) = _INT64.unpack_from(value, end)
        metadata = "" if end == begin else value[begin:end].decode()
        return offset, leader_epoch, metadata, commit_ms, topic_id

    def replay_end_marker(self, producer_id: int, committed: bool) -> list[str]:
        """The groups whose offsets the transaction changed."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return []
        changed = set()
        for (group, topic, partition), offset in pending.items():
            self._forget_pending(group, topic, partition)
            if not committed:
                continue
            current = self.get(group, topic, partition)
            if current is None or current.sequence < offset.sequence:
                self._committed.setdefault(group, {}).setdefault(topic, {})[partition] = offset
                changed.add(group)
        return sorted(changed)

    def _put(
        self,
        group: str,
        topic: str,
        partition: int,
        producer_id: int,
        offset: int,
        leader_epoch: int,
        metadata: str,
        commit_ms: int,
        expire_ms: int,
        topic_id: bytes,
    ) -> None:
        self._sequence += 1
        committed = CommittedOffset(
            offset, leader_epoch, metadata, commit_ms, expire_ms, self._sequence, topic_id
        )
        if producer_id >= 0:
            pending = self._pending.setdefault(producer_id, {})
            if (group, topic, partition) not in pending:
                counts = self._pending_counts.setdefault(group, {})
                counts[topic, partition] = counts.get((topic, partition), 0) + 1
            pending[group, topic, partition] = committed
            return
        topics = self._committed.get(group)
        if topics is None:
            topics = self._committed[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = committed

    def _remove(self, group: str, topic: str, partition: int) -> None:
        # A tombstone stands for the end of the offset in every form: one that a transaction still
        # holds must not come back after the topic or the group was deleted.
        for pending in self._pending.values():
            if pending.pop((group, topic, partition), None) is not None:
                self._forget_pending(group, topic, partition)
        topics = self._committed.get(group)
        partitions = None if topics is None else topics.get(topic)
        if topics is None or partitions is None:
            return
        partitions.pop(partition, None)
        if not partitions:
            self._last_prefix = b""
            del topics[topic]
            if not topics:
                del self._committed[group]

    def _forget_pending(self, group: str, topic: str, partition: int) -> None:
        counts = self._pending_counts[group]
        counts[topic, partition] -= 1
        if counts[topic, partition] == 0:
            del counts[topic, partition]
            if not counts:
                del self._pending_counts[group]


def _parse_key(key: bytes) -> tuple[str, str, int]:
    position = 4 + _KEY_HEAD.unpack_from(key)[1]
    group = key[4:position].decode()
    end = position + 2 + _LENGTH.unpack_from(key, position)[0]
    (partition,) = _INT32.unpack_from(key, end)
    if end + 4 != len(key):
        raise IndexError(f"a key of {len(key)} bytes ends at {end + 4}")
    return group, key[position + 2 : end].decode(), partition
