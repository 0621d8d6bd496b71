"""The disk of a simulated replica: a log that forgets what was not synced, snapshots, quorum-state.

The log is a list of batches in the page cache (`batches`) and a list of those that are known to be
on disk (`synced`). A power cut leaves something between the two: the synced list, with any part of
what was appended since; or, when the log was truncated since, the truncated one with any part of
what came after. A batch that is torn is one that recovery cuts off.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import Buffer, iterate_headers, stamp
from tidelog.raft.quorum_state_file import ElectionState
from tidelog.raft.raft_log import SnapshotId, continues_snapshot


class StoredBatch(NamedTuple):
    base_offset: int
    next_offset: int
    epoch: int
    data: bytes


class SimulatedDisk:
    """A RaftLog, with what happens to it when the power goes."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.synced: list[StoredBatch] = []
        self.start_offset = 0
        self.end_offset = 0
        self.epochs: list[tuple[int, int]] = []  # epoch and start offset, both rising
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.election = ElectionState(0)  # as it is on disk
        self.visible_election = self.election  # as a process reads it
        self.unsynced_election: ElectionState | None = None
        self.on_append: Callable[[StoredBatch, int], None] = lambda batch, epoch_before: None
        self.on_truncate: Callable[[StoredBatch], None] = lambda batch: None
        self.is_full = False
        self.refusals = 0
        self._received: tuple[SnapshotId, bytearray] | None = None

    # As a RaftLog

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        epochs = self.epochs
        if not epochs or epoch > epochs[-1][0]:
            return -1, -1
        known, end = epoch, self.end_offset
        for each, start in reversed(epochs):
            if each <= epoch:
                return each, end
            known, end = epoch, start
        return known, end

    def read(self, offset: int, max_bytes: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        for batch in reversed(self.batches):
            if batch.next_offset <= offset:
                break
            parts.append(batch.data)
        parts.reverse()
        kept: list[bytes] = []
        for part in parts:
            size += len(part)
            if kept and size > max_bytes:
                break
            kept.append(part)
        return b"".join(kept)

    def append_as_leader(self, batches: bytearray, epoch: int) -> int:
        self._require_space()
        next_offset = self.end_offset
        for at, header in list(iterate_headers(batches)):
            stamp(batches, at, next_offset, epoch)
            next_offset += header.last_offset_delta + 1
        self._append(batches)
        return self.end_offset

    def append_as_follower(self, batches: Buffer) -> None:
        self._require_space()
        self._append(batches)

    def _append(self, batches: Buffer) -> None:
        data = bytes(batches)
        for at, header in iterate_headers(data):
            base, epoch = header.base_offset, header.partition_leader_epoch
            assert base == self.end_offset, f"a batch at {base} does not follow {self.end_offset}"
            assert epoch >= self.latest_epoch, "epochs go back in a log"
            next_offset = header.next_offset
            batch = StoredBatch(base, next_offset, epoch, data[at : at + header.size_bytes])
            self.on_append(batch, self.latest_epoch)
            self.batches.append(batch)
            self._note_epoch(epoch, base)
            self.end_offset = next_offset

    def _note_epoch(self, epoch: int, offset: int) -> None:
        if not self.epochs or self.epochs[-1][0] != epoch:
            self.epochs.append((epoch, offset))

    def _require_space(self) -> None:
        if self.is_full:
            self.refusals += 1
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    def truncate_to(self, offset: int) -> None:
        while self.batches and self.batches[-1].next_offset > offset:
            self.on_truncate(self.batches.pop())
        self.end_offset = self.batches[-1].next_offset if self.batches else self.start_offset
        while self.epochs and self.epochs[-1][1] >= self.end_offset:
            self.epochs.pop()

    @property
    def newest_snapshot_id(self) -> SnapshotId | None:
        return max(self.snapshots) if self.snapshots else None

    @property
    def oldest_snapshot_id(self) -> SnapshotId | None:
        return min(self.snapshots) if self.snapshots else None

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        content = self.snapshots.get(snapshot_id)
        return None if content is None else len(content)

    def read_snapshot(
        self, snapshot_id: SnapshotId, position: int, max_bytes: int
    ) -> Buffer | None:
        content = self.snapshots.get(snapshot_id)
        return None if content is None else content[position : position + max_bytes]

    def begin_snapshot(self, snapshot_id: SnapshotId) -> None:
        self._received = snapshot_id, bytearray()

    def append_to_snapshot(self, chunk: Buffer) -> None:
        self._require_space()
        assert self._received is not None
        self._received[1].extend(chunk)

    # Durability

    def begin_sync(self) -> list[StoredBatch]:
        """What a sync that begins now will have on disk."""
        return self.batches.copy()

    def finish_sync(self, batches: list[StoredBatch]) -> None:
        # The start may have moved while it was under way.
        self.synced = [each for each in batches if each.next_offset > self.start_offset]

    def finish_persist(self) -> None:
        assert self.unsynced_election is not None
        self.election = self.visible_election = self.unsynced_election
        self.unsynced_election = None

    def install_snapshot(self, snapshot_id: SnapshotId) -> bytes:
        """It is on disk and listed; the log still is what it was."""
        assert self._received is not None
        assert self._received[0] == snapshot_id
        content = bytes(self._received[1])
        self.snapshots[snapshot_id] = content
        self._received = None
        return content

    def restart_at(self, snapshot_id: SnapshotId) -> None:
        """Empty the log, and begin again where the snapshot ends."""
        self.batches, self.synced, self.epochs = [], [], []
        self.start_offset = self.end_offset = snapshot_id.offset
        self.snapshots = {each: c for each, c in self.snapshots.items() if each >= snapshot_id}

    def advance_start(self, snapshot_id: SnapshotId) -> None:
        """Forget what a snapshot holds."""
        offset = snapshot_id.offset
        self.start_offset = offset
        self.batches = [each for each in self.batches if each.next_offset > offset]
        self.synced = [each for each in self.synced if each.next_offset > offset]
        if self.epochs:
            later = [each for each in self.epochs if each[1] >= offset]
            if self.batches and (not later or later[0][1] != offset):
                later.insert(0, (self.batches[0].epoch, offset))
            self.epochs = later
        self.snapshots = {each: c for each, c in self.snapshots.items() if each.offset >= offset}

    def synced_end(self) -> int:
        return self.synced[-1].next_offset if self.synced else self.start_offset

    def has_synced(self, offset: int, epoch: int) -> bool:
        """Whether the log is on disk up to `offset`, with a record of `epoch` before it."""
        if self.start_offset >= offset or any(each.offset >= offset for each in self.snapshots):
            return True
        for batch in reversed(self.synced):
            if batch.next_offset <= offset:
                return batch.next_offset == offset and batch.epoch == epoch
        return False

    # Faults

    def lose_power(self, random: Random) -> None:
        """What the page cache held is lost, or is not."""
        current, synced = self.batches, self.synced
        common = 0
        while common < min(len(current), len(synced)) and current[common] is synced[common]:
            common += 1
        kept = random.randint(0, len(current) - common)
        if common < len(synced) and random.random() < 0.5:
            self.batches = synced.copy()
        else:
            self.batches = current[: common + kept]
        self._reload()
        if self.unsynced_election is not None and random.random() < 0.5:
            self.election = self.unsynced_election
        self.unsynced_election = None
        self.visible_election = self.election
        self.synced = self.batches.copy()

    def lose_process(self, random: Random) -> None:
        """The page cache stays, but is no more durable for that."""
        if self.unsynced_election is not None and random.random() < 0.5:
            self.visible_election = self.unsynced_election
        self.unsynced_election = None

    def _reload(self) -> None:
        self.end_offset = self.batches[-1].next_offset if self.batches else self.start_offset
        self.epochs = []
        for batch in self.batches:
            self._note_epoch(batch.epoch, max(batch.base_offset, self.start_offset))

    def open(self) -> None:
        """What whoever opens a log does before a replica gets it."""
        self._received = None
        newest = self.newest_snapshot_id
        if newest is not None and not continues_snapshot(self, newest):
            self.restart_at(newest)
