"""The groups of one shard: the two kinds under one roof, and what their records do to them."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.coordinator.groups.classic_group import ClassicGroup
from tidelog.coordinator.groups.consumer_group import ConsumerGroup
from tidelog.coordinator.records.group import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
)
from tidelog.coordinator.shard import CoordinatorRecord

Group = ClassicGroup | ConsumerGroup


class GroupTable:
    """Groups by id. A classic group without a record of its own is a simple one: it has offsets,
    and nobody ever joined it."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def begin_classic(self, group_id: str) -> ClassicGroup:
        """A new classic group, empty and without a record."""
        group = ClassicGroup(group_id)
        self._groups[group_id] = group
        return group

    def ensure(self, group_id: str) -> None:
        """Offsets belong to a group: one that nobody joined is there as a simple group."""
        if group_id not in self._groups:
            self.begin_classic(group_id)

    def forget(self, group_id: str) -> None:
        """Drops a group that has no record."""
        self._groups.pop(group_id, None)

    def replay_classic(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        group = self.classic(key.group)
        if value is None:
            if group is not None:
                del self._groups[key.group]
            return
        if group is None:
            group = self.begin_classic(key.group)
        group.restore(value)

    def replay_consumer(self, group_id: str, record: CoordinatorRecord) -> None:
        group = self.consumer(group_id)
        is_removal = record.value is None
        if isinstance(record.key, ConsumerGroupMetadataKey) and is_removal:
            if group is not None:
                del self._groups[group_id]
            return
        if group is None:
            if is_removal:
                return
            # A classic group of this name can only be a simple one here: the records of any other
            # end with its tombstone before those of the consumer group begin.
            group = ConsumerGroup(group_id)
            self._groups[group_id] = group
        group.replay(record)
