"""What must hold of a node's partitions after every turn of its loop, and from life to life."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.cluster.replication.partition import Partition
from tidelog.server.node import Node


class _Seen(NamedTuple):
    """The offsets of a partition that only grow within a life."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    durable_offset: int


class Invariants:
    """Watches the partitions of a node over all its lives.

    Within a life: log start <= last stable offset <= high watermark <= log end, and of these none
    goes back but the log end. From life to life: a log does not end below what was committed, for
    that may have been acknowledged and read.
    """

    def __init__(self, problem: Callable[[str], None]) -> None:
        self._problem = problem
        self._seen: dict[Partition, _Seen] = {}
        self._committed: dict[tuple[bytes, int], int] = {}
        self._may_lose: set[tuple[bytes, int]] = set()
        """Logs that were in the page cache only, for a time at least."""

    def life_began(self) -> None:
        self._seen.clear()

    def check(self, node: Node) -> None:
        """After a turn."""
        for partition in node.partitions:
            log = partition.log
            now = _Seen(
                log.log_start_offset,
                partition.last_stable_offset,
                partition.high_watermark,
                log.durable_offset,
            )
            before = self._seen.get(partition)
            if now == before:
                continue
            self._seen[partition] = now
            start, stable, high, durable = now
            if not start <= stable <= high <= durable <= log.log_end_offset:
                self._tell(partition, f"the offsets are out of order: {now}", log.log_end_offset)
            key = partition.topic_id, partition.partition
            if log.config.durability != "fsync":
                self._may_lose.add(key)
            if key in self._may_lose:
                continue
            if before is None:
                if log.log_end_offset < self._committed.get(key, 0):
                    self._tell(
                        partition, f"was committed up to {self._committed[key]}", log.log_end_offset
                    )
            elif min(map(int.__sub__, now, before)) < 0:
                self._tell(partition, f"went back from {before} to {now}", log.log_end_offset)
            self._committed[key] = max(high, self._committed.get(key, 0))

    def _tell(self, partition: Partition, what: str, log_end_offset: int) -> None:
        self._problem(
            f"{partition.topic}-{partition.partition}: {what}; the log ends at {log_end_offset}"
        )
