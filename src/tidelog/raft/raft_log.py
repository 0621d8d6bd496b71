"""What consensus needs of a log, and how two logs are compared.

The log is `storage.log.Log` behind an adapter, with snapshots beside it. Appends and truncations
reach the page cache here; what is on disk the caller says with `Replica.synced`.

An entry is known by its offset and its leader epoch. Two logs that have the same epoch at the same
offset are equal up to there, so a follower that names the end of its log and the epoch of its last
record learns from one comparison whether it agrees with the leader (`compare`):

    valid      the leader has the follower's last record: read on from there
    diverging  the largest epoch up to the follower's that the leader has, and where it ended: the
               follower truncates and asks again
    snapshot   the leader has forgotten that part of its log: load this snapshot first
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tidelog.protocol.record_batch import Buffer

UNDEFINED_EPOCH = -1


class OffsetAndEpoch(NamedTuple):
    """The end of a log, or of an epoch in it: the offset is the first that it does not have."""

    offset: int
    epoch: int


class SnapshotId(NamedTuple):
    """`offset` is the first that the snapshot does not hold, `epoch` that of the one before."""

    offset: int
    epoch: int


BOOTSTRAP_SNAPSHOT_ID = SnapshotId(0, 0)
"""Holds what a cluster begins with. Replicas have their own; it is never sent."""


class RaftLog(Protocol):
    """The metadata log with its snapshots, on the loop thread.

    Every snapshot is of committed state. `start_offset` is 0, or there is a snapshot at or above
    it; snapshots below it are not listed. When the log does not continue the newest snapshot (see
    `continues_snapshot`), whoever opens it restarts it there before a replica gets it.
    """

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int:
        """Of the last record; -1 when there is none."""
        ...

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """As LeaderEpochCache has it: the largest known epoch <= `epoch` and where it ended;
        (-1, -1) when `epoch` is newer than all or nothing is known."""
        ...

    def read(self, offset: int, max_bytes: int) -> Buffer:
        """Whole batches from `offset` on, one at least unless it is the end."""
        ...

    def append_as_leader(self, batches: bytearray, epoch: int) -> int:
        """Stamps offsets and epoch into `batches` and appends them; returns the offset after them.
        Raises ApiError when the disk does not take them, and then the log is as it was."""
        ...

    def append_as_follower(self, batches: Buffer) -> None:
        """Appends what a leader sent. Raises ApiError; the log is as it was then."""
        ...

    def truncate_to(self, offset: int) -> None:
        """Drops everything from `offset` on, from the epoch cache too."""
        ...

    @property
    def newest_snapshot_id(self) -> SnapshotId | None: ...

    @property
    def oldest_snapshot_id(self) -> SnapshotId | None: ...

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """In bytes; None when there is no such snapshot (any more)."""
        ...

    def read_snapshot(
        self, snapshot_id: SnapshotId, position: int, max_bytes: int
    ) -> Buffer | None: ...

    def begin_snapshot(self, snapshot_id: SnapshotId) -> None:
        """A snapshot is to be received; one that was begun before is dropped."""
        ...

    def append_to_snapshot(self, chunk: Buffer) -> None:
        """The next part of it. Raises ApiError when the disk does not take it."""
        ...


class Valid(NamedTuple):
    pass


class Diverging(NamedTuple):
    end: OffsetAndEpoch


class SnapshotRequired(NamedTuple):
    snapshot_id: SnapshotId


VALID = Valid()


def log_end(log: RaftLog) -> OffsetAndEpoch:
    """The end of the log and the epoch of its last record, which a snapshot may hold."""
    epoch = log.latest_epoch
    if epoch == UNDEFINED_EPOCH:
        snapshot_id = log.newest_snapshot_id
        epoch = 0 if snapshot_id is None else snapshot_id.epoch
    return OffsetAndEpoch(log.end_offset, epoch)


def end_of_epoch(log: RaftLog, epoch: int) -> OffsetAndEpoch:
    """The largest epoch <= `epoch` that the log or its oldest snapshot has, and where it ended."""
    known_epoch, end_offset = log.end_offset_for(epoch)
    if known_epoch == UNDEFINED_EPOCH:
        return log_end(log)
    oldest = log.oldest_snapshot_id
    if oldest is not None and end_offset == oldest.offset and known_epoch == epoch:
        # The cache knows where its first epoch begins, not which one came before: the snapshot
        # does.
        return OffsetAndEpoch(oldest.offset, oldest.epoch)
    return OffsetAndEpoch(end_offset, known_epoch)


def compare(log: RaftLog, offset: int, epoch: int) -> Valid | Diverging | SnapshotRequired:
    """Whether a follower's log, which ends at `offset` with a record of `epoch`, is a prefix of
    this one; if not, what brings it closer."""
    newest = log.newest_snapshot_id
    if offset == 0 and newest is not None and newest != BOOTSTRAP_SNAPSHOT_ID:
        return SnapshotRequired(newest)
    start_offset = log.start_offset
    if offset == 0 == start_offset:
        return VALID
    oldest = log.oldest_snapshot_id
    if oldest is not None and (
        offset < start_offset
        or (offset == start_offset and epoch != oldest.epoch)
        or epoch < oldest.epoch
    ):
        assert newest is not None, "a log has a newest snapshot if it has an oldest one"
        return SnapshotRequired(newest)
    end = end_of_epoch(log, epoch)
    if end.epoch != epoch or end.offset < offset:
        return Diverging(end)
    return VALID


def truncation_point(log: RaftLog, end: OffsetAndEpoch) -> int:
    """How far a follower's log may agree with a leader's in which `end.epoch` ends at
    `end.offset` and later records diverge."""
    if end.epoch == 0:
        return min(end.offset, log.end_offset)
    own = end_of_epoch(log, end.epoch)
    return min(own.offset, end.offset) if own.epoch == end.epoch else own.offset


def continues_snapshot(log: RaftLog, snapshot_id: SnapshotId) -> bool:
    """Whether the log goes on from the snapshot. It does not after a snapshot was received and the
    power went before the old log was dropped; then it has to restart at the snapshot."""
    if log.end_offset < snapshot_id.offset:
        return False
    if log.start_offset >= snapshot_id.offset:
        return log.start_offset == snapshot_id.offset
    # The record before its end must be of the snapshot's epoch.
    known_epoch, ends_at = log.end_offset_for(snapshot_id.epoch)
    _, begins_at = log.end_offset_for(snapshot_id.epoch - 1)
    return known_epoch == snapshot_id.epoch and begins_at < snapshot_id.offset <= ends_at
