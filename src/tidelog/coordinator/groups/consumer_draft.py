"""Records in the making, and the group as it will be when they are in the log."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.coordinator.groups.consumer_group import ConsumerGroup
from tidelog.coordinator.shard import CoordinatorRecord


class Draft:
    """A heartbeat decides in steps, and each step builds on the one before. `group` is the live
    group until the first record, then a copy onto which every record is replayed at once: what the
    log may still refuse is never seen by anybody else."""

    def __init__(self, group: ConsumerGroup, records: Iterable[CoordinatorRecord] = ()) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = list(records)
        self._copied = False

    def add(self, *records: CoordinatorRecord) -> None:
        if not records:
            return
        if not self._copied:
            self.group = self.group.copy()
            self._copied = True
        for record in records:
            self.group.replay(record)
        self.records += records
