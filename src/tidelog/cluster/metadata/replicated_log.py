"""The metadata log and its snapshots as consensus wants them: `raft.raft_log.RaftLog` on a `Log`.

Appends and truncations reach the page cache; `prepare_sync` gathers, on the loop thread, the files
that a worker has to sync so that they last. Snapshots are listed when they are whole: those that a
start found, those that this node has taken, and those that were received from the leader.

The log has a reserve of room, for what ends the want of it when the disk is full: a topic is
deleted, another node leads a partition, and a node hears of either. All of that is said in this
log. A leader leaves half of the reserve, for it may have to follow another.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tidelog.cluster.metadata.metadata_snapshot import (
    list_snapshots,
    part_file_name,
    snapshot_file_name,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import Buffer
from tidelog.raft.raft_log import SnapshotId
from tidelog.storage.append_result import Origin
from tidelog.storage.files import NO_SPACE, OpenFile, write_file, write_fully
from tidelog.storage.log import Log
from tidelog.storage.space_reserve import SpaceReserve
from tidelog.world import World

RESERVE_NAME = "space.reserve"
RESERVE_BYTES = 1 << 20
_NO_SEGMENT = -1

Result = TypeVar("Result")


class ReplicatedLog:
    """All of it belongs to the loop thread, but the calls that `prepare_*` return."""

    def __init__(self, world: World, directory: Path, log: Log) -> None:
        self.log = log
        self.directory = directory
        self._files = world.files
        self._clock = world.wall_ms
        self._sizes: dict[SnapshotId, int] = {}
        # Base offset of the newest segment whose file is known to last, with all before it.
        self._synced_segment = _NO_SEGMENT
        self._received: tuple[SnapshotId, int] | None = None  # what is being received, and its size
        self.reserve = SpaceReserve(world.files, directory / RESERVE_NAME, RESERVE_BYTES)
        for snapshot_id in list_snapshots(world.files, directory):
            if snapshot_id.offset >= log.log_start_offset:
                self._list(snapshot_id)

    # The log

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def latest_epoch(self) -> int:
        return self.log.leader_epochs.latest_epoch

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        return self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)

    def read(self, offset: int, max_bytes: int) -> Buffer:
        found = self.log.read(offset, max_bytes, self.log.log_end_offset)
        return b"" if found.file_slice is None else found.file_slice.read(self._files)

    def append_as_leader(self, batches: bytearray, epoch: int) -> int:
        def append() -> int:
            result = self.log.append_as_leader(
                memoryview(batches), epoch, self._clock(), origin=Origin.RAFT
            )
            return result.last_offset + 1

        return self._with_reserve(append, len(batches), kept_bytes=RESERVE_BYTES // 2)

    def append_as_follower(self, batches: Buffer) -> None:
        self._with_reserve(
            lambda: self.log.append_as_follower(memoryview(batches)), len(batches), kept_bytes=0
        )

    def _with_reserve(
        self, append: Callable[[], Result], size_bytes: int, *, kept_bytes: int
    ) -> Result:
        """Appends, again with room from the reserve for as long as the disk is too full for it."""
        while True:
            try:
                return append()
            except ApiError as error:
                refusal = error.__cause__
                if not isinstance(refusal, OSError) or refusal.errno not in NO_SPACE:
                    raise
                if not self.make_room(size_bytes, kept_bytes=kept_bytes):
                    raise

    def make_room(self, size_bytes: int, *, kept_bytes: int = 0) -> bool:
        """Gives back some of the reserve; False when no more than `kept_bytes` are left of it."""
        try:
            return self.reserve.give_back(size_bytes, kept_bytes=kept_bytes)
        except OSError:
            return False  # what is wrong with the disk, an append or a sync says

    def truncate_to(self, offset: int) -> None:
        # It has no journal, so all of it happens here.
        self.log.truncate_to(offset)
        self._synced_segment = min(self._synced_segment, self.log.active_segment.base_offset)

    def restart_at(self, snapshot_id: SnapshotId) -> None:
        """Empties the log, which goes on from the snapshot. Raises OSError and ApiError."""
        self.log.truncate_fully_and_start_at(snapshot_id.offset)
        self._synced_segment = _NO_SEGMENT
        for older in [each for each in self._sizes if each.offset < snapshot_id.offset]:
            del self._sizes[older]

    def prepare_sync(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """What a worker does to make everything last that is in the log now, and what is to be
        called on the loop thread when it has. Raises OSError."""
        files: list[OpenFile] = []
        log = self.log
        for segment in log.segments:
            if segment.base_offset >= self._synced_segment:
                files.append(segment.open())
        active = log.active_segment.base_offset
        has_new_file = active != self._synced_segment
        before = self._synced_segment

        def sync() -> None:
            for file in files:
                self._files.fdatasync(file.fd)
            if has_new_file:
                self._files.sync_directory(self.directory)

        def synced() -> None:
            # A log that was cut or emptied meanwhile has other files.
            if self._synced_segment == before:
                self._synced_segment = active

        return sync, synced

    # Snapshots

    @property
    def newest_snapshot_id(self) -> SnapshotId | None:
        return max(self._sizes, default=None)

    @property
    def oldest_snapshot_id(self) -> SnapshotId | None:
        return min(self._sizes, default=None)

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        return self._sizes.get(snapshot_id)

    def read_snapshot(
        self, snapshot_id: SnapshotId, position: int, max_bytes: int
    ) -> Buffer | None:
        try:
            fd = self._files.open(self._path(snapshot_id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return self._files.pread(fd, max_bytes, position)
        finally:
            self._files.close(fd)

    def taken(self, kept: list[SnapshotId]) -> None:
        """This node has written a snapshot; `kept` are those that are there now."""
        for snapshot_id in kept:
            if snapshot_id not in self._sizes:
                self._list(snapshot_id)
        for gone in [each for each in self._sizes if each not in kept]:
            del self._sizes[gone]

    def forget_below(self, start_offset: int) -> None:
        """The log starts there now."""
        for gone in [each for each in self._sizes if each.offset < start_offset]:
            del self._sizes[gone]

    def begin_snapshot(self, snapshot_id: SnapshotId) -> None:
        try:
            write_file(self._files, self._part(snapshot_id), b"")
        except OSError as error:
            raise self._refused(snapshot_id, error) from error
        self._received = snapshot_id, 0

    def append_to_snapshot(self, chunk: Buffer) -> None:
        assert self._received is not None, "a snapshot is begun before it is received"
        snapshot_id, size_bytes = self._received
        try:
            fd = self._files.open(self._part(snapshot_id), os.O_WRONLY | os.O_CLOEXEC)
            try:
                write_fully(self._files, fd, chunk, size_bytes)
            finally:
                self._files.close(fd)
        except OSError as error:
            raise self._refused(snapshot_id, error) from error
        self._received = snapshot_id, size_bytes + len(chunk)

    def prepare_installation(self, snapshot_id: SnapshotId) -> Callable[[], None]:
        """What a worker does to make the received snapshot last, under its own name."""
        part, path = self._part(snapshot_id), self._path(snapshot_id)

        def install() -> None:
            fd = self._files.open(part, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._files.fsync(fd)
            finally:
                self._files.close(fd)
            self._files.rename(part, path)
            self._files.sync_directory(self.directory)

        return install

    def installed(self, snapshot_id: SnapshotId) -> None:
        """The received snapshot has its name, and lasts."""
        self._received = None
        self._list(snapshot_id)

    def _list(self, snapshot_id: SnapshotId) -> None:
        self._sizes[snapshot_id] = self._files.stat(self._path(snapshot_id)).st_size

    def _path(self, snapshot_id: SnapshotId) -> Path:
        return self.directory / snapshot_file_name(snapshot_id)

    def _part(self, snapshot_id: SnapshotId) -> Path:
        return self.directory / part_file_name(snapshot_id)

    def _refused(self, snapshot_id: SnapshotId, error: OSError) -> ApiError:
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self._part(snapshot_id)} cannot be written: {error.strerror or error}",
        )
