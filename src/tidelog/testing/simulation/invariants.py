"""What must hold of a node's logs after every turn of its loop, and from life to life."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidelog.cluster.metadata.image import MetadataImage
from tidelog.cluster.replication.partition import Partition
from tidelog.protocol.record_batch import read_header
from tidelog.server.node import Node
from tidelog.testing.simulation.disk import SimulatedDisk


class _Seen(NamedTuple):
    """The offsets of a partition that only grow within a life."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    durable_offset: int


class _CommittedMetadata(NamedTuple):
    """The last committed offset of the metadata, and the segment that has it."""

    offset: int
    path: Path
    content: bytes


class Invariants:
    """Watches the partitions of a node, and its metadata, over all its lives.

    Within a life: log start <= last stable offset <= high watermark <= durable <= log end, and of
    these none goes back but the log end. A follower may know of a high watermark above what it has
    synced, its log is cut, and its high watermark goes back when the next leader knows less. From
    life to life: a log does not end below what was committed, for that may have been acknowledged
    and read, and metadata that was committed is the same.

    What is on `disk` is looked at behind the node's back, which has no faults.
    """

    def __init__(self, problem: Callable[[str], None], disk: SimulatedDisk) -> None:
        self._problem = problem
        self._disk = disk
        self._metadata: _CommittedMetadata | None = None
        self._seen: dict[Partition, _Seen] = {}
        self._committed: dict[tuple[bytes, int], int] = {}
        self._may_lose: set[tuple[bytes, int]] = set()
        """Logs that were in the page cache only, for a time at least, or may be cut below what was
        committed by a leader that was elected uncleanly."""
        self._image: MetadataImage | None = None

    def life_began(self, node: Node) -> None:
        self._seen.clear()
        before, self._metadata = self._metadata, None
        log = node.metadata.log
        if before is None or before.offset < log.log_start_offset:
            return
        committed = _up_to(before.content, before.offset)
        segment = next((each for each in log.segments if each.path == before.path), None)
        if segment is None or not self._disk.read(segment.path).startswith(committed):
            self._problem(
                f"the metadata was committed up to {before.offset}, and {before.path} has lost "
                f"some of that; the log ends at {log.log_end_offset}"
            )

    def check(self, node: Node) -> None:
        """After a turn."""
        if node.image is not self._image:
            self._image = node.image
            self._forget_what_moved(node)
        self._check_partitions(node)
        offset = node.image.offset
        if len(node.metadata.quorum.voters) != 1:
            # The others may have committed what this node has not synced.
            self._metadata = None
        elif self._metadata is None or self._metadata.offset != offset:
            path = node.metadata.log.local.segments.from_offset(offset)[0].path
            self._metadata = _CommittedMetadata(offset, path, self._disk.read(path))

    def _forget_what_moved(self, node: Node) -> None:
        """A replica that was given to another node may come back, and begins again then."""
        for topic_id, index in list(self._committed):
            topic = node.image.topics_by_id.get(topic_id)
            if topic is None or index >= len(topic.partitions):
                continue  # a node that starts may know of less than it has
            if node.config.node_id not in topic.partitions[index].replicas:
                del self._committed[topic_id, index]

    def _check_partitions(self, node: Node) -> None:
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
            is_leader = partition.is_leader
            high_max = durable if is_leader else log.log_end_offset
            if not start <= stable <= high <= high_max <= log.log_end_offset:
                self._tell(partition, f"the offsets are out of order: {now}", log.log_end_offset)
            key = partition.topic_id, partition.partition
            if log.config.durability != "fsync" or allows_unclean_elections(node, partition):
                self._may_lose.add(key)
            if key in self._may_lose:
                continue
            if before is None:
                if not log.log_end_offset and node.config.node_id not in partition.isr:
                    # It was moved away and has come back, perhaps both in this turn.
                    self._committed.pop(key, None)
                if log.log_end_offset < self._committed.get(key, 0):
                    self._tell(
                        partition, f"was committed up to {self._committed[key]}", log.log_end_offset
                    )
            elif _went_back(partition, before, now):
                self._tell(partition, f"went back from {before} to {now}", log.log_end_offset)
            self._committed[key] = max(min(high, durable), self._committed.get(key, 0))

    def _tell(self, partition: Partition, what: str, log_end_offset: int) -> None:
        self._problem(
            f"{partition.topic}-{partition.partition}: {what}; the log ends at {log_end_offset}"
        )


def allows_unclean_elections(node: Node, partition: Partition) -> bool:
    """Whether a leader may be elected that lacks what was committed."""
    settings = node.image.topic_configs(partition.topic)
    return settings.get("unclean.leader.election.enable") == "true"


def _went_back(partition: Partition, before: _Seen, now: _Seen) -> bool:
    """Whether an offset has gone back that must not; the log of a follower may be cut."""
    compared = 4 if len(partition.replicas) == 1 else 3 if partition.is_leader else 1
    return any(after < earlier for earlier, after in zip(before[:compared], now, strict=False))


def _up_to(content: bytes, offset: int) -> bytes:
    """The batches of a segment up to the one that holds `offset`."""
    at = 0
    while True:
        header = read_header(content, at)
        at += header.size_bytes
        if header.next_offset > offset:
            return content[:at]
