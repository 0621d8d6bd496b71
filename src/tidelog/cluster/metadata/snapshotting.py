"""When the metadata is written down as a snapshot, and how that is done beside the loop.

loop      begin: the image, which never changes, and the files of the log to sync
worker    the log is synced
worker    the image is encoded, written and synced; older snapshots are removed
loop      the log is rolled, and what the two newest snapshots make needless leaves it
worker    the files of it are removed
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tidelog.cluster.metadata.image import MetadataImage
from tidelog.cluster.metadata.image_records import image_records
from tidelog.cluster.metadata.metadata_snapshot import (
    list_snapshots,
    snapshot_file_name,
    write_snapshot,
)
from tidelog.cluster.metadata.quorum_member import PostBack, QuorumMember
from tidelog.promise import Promise
from tidelog.protocol.control_records import Voter
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.raft.raft_log import SnapshotId
from tidelog.storage.flush import Flush
from tidelog.storage.log import Log
from tidelog.world import World
from tidelog.world.workers import Worker

logger = logging.getLogger(__name__)


class SnapshotOptions(NamedTuple):
    """When a snapshot is due. Small limits keep start-up fast: what is behind is replayed."""

    bytes_max: int = 1 << 20
    records_max: int = 5_000
    records_max_at_close: int = 500
    interval_ms: int = 3600 * 1000  # 0: never by time


class Snapshotting:
    """Takes one snapshot at a time. A disk that takes none costs start-up time and nothing else,
    so that is only told of.

    `may_trim` says whether the log may lose what the two newest snapshots make needless.
    """

    def __init__(
        self,
        world: World,
        directory: Path,
        log: Log,
        quorum: QuorumMember,
        options: SnapshotOptions,
        worker: Worker,
        post_back: PostBack,
        may_trim: Callable[[], bool],
    ) -> None:
        self._files = world.files
        self._clock = world.wall_ms
        self._give_way = world.give_way
        self._directory = directory
        self._log = log
        self._quorum = quorum
        self._options = options
        self._worker = worker
        self._post_back = post_back
        self._may_trim = may_trim
        self._bytes_since_last = 0
        self._records_since_last = 0
        self._last_ms = world.wall_ms()
        self._under_way: Promise[SnapshotId] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._under_way is not None

    def note(self, size_bytes: int, record_count: int) -> None:
        """So much has been added to the log."""
        self._bytes_since_last += size_bytes
        self._records_since_last += record_count

    @property
    def is_due(self) -> bool:
        """Whether so much is behind the last snapshot that another one pays."""
        return (
            self._bytes_since_last >= self._options.bytes_max
            or self._records_since_last >= self._options.records_max
        )

    @property
    def is_due_at_close(self) -> bool:
        return self._records_since_last >= self._options.records_max_at_close

    def is_due_by_time(self, now_ms: int) -> bool:
        interval_ms = self._options.interval_ms
        return bool(
            interval_ms and self._records_since_last and now_ms - self._last_ms >= interval_ms
        )

    def begin(
        self, image: MetadataImage, kraft_version: int, voters: Sequence[Voter]
    ) -> Promise[SnapshotId]:
        """A snapshot of the image, which is committed; the one under way if there is one."""
        if self._under_way is not None:
            return self._under_way
        promise = self._under_way = Promise()
        self._bytes_since_last = self._records_since_last = 0
        self._last_ms = self._clock()
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        write = partial(self._write, snapshot_id, image, kraft_version, list(voters), self._last_ms)
        with self._ended_by_failure():
            # The next start trusts what is below a snapshot without looking at it.
            flush = self._log.local.prepare_flush(self._log.log_end_offset)
            self._quorum.flush(flush, partial(self._flushed, flush, write))
        return promise

    def _flushed(self, flush: Flush, write: Callable[[], None], error: ApiError | None) -> None:
        if error is not None:
            self._fail(error)
            return
        with self._ended_by_failure():
            self._log.local.finish_flush(flush)
            self._worker.submit(write)

    def _write(
        self,
        snapshot_id: SnapshotId,
        image: MetadataImage,
        kraft_version: int,
        voters: list[Voter],
        now_ms: int,
    ) -> None:
        """On the worker. Two snapshots are kept, in case one gets damaged."""
        try:
            write_snapshot(
                self._files,
                self._directory,
                snapshot_id,
                image_records(image),
                metadata_version=image.metadata_version,
                timestamp_ms=image.timestamp_ms,
                now_ms=now_ms,
                kraft_version=kraft_version,
                voters=voters,
                give_way=self._give_way,
            )
            snapshots = list_snapshots(self._files, self._directory)
            for old in snapshots[2:]:
                self._files.unlink(self._directory / snapshot_file_name(old))
        except OSError as error:
            self._post_back(partial(self._fail, error))
        except BaseException as bug:
            self._post_back(partial(self._fail, bug))
            raise
        else:
            self._post_back(partial(self._written, snapshot_id, snapshots[:2]))

    def _written(self, snapshot_id: SnapshotId, kept: list[SnapshotId]) -> None:
        now_ms = self._clock()
        with self._ended_by_failure():
            if snapshot_id.offset >= self._log.log_start_offset:
                # Otherwise one of the leader's has taken the place of the log meanwhile.
                self._quorum.snapshot_taken(snapshot_id, kept)
            self._log.roll(now_ms)
            if len(kept) > 1 and self._may_trim():
                self._log.advance_log_start(kept[1].offset)
                self._log.delete_old_segments(now_ms, snapshot_id.offset)
                paths = self._log.local.segments.take_deletable_files(now_ms + 1)
                self._worker.submit(partial(self._remove, paths))
            promise, self._under_way = self._under_way, None
            assert promise is not None
            promise.resolve(snapshot_id)

    def _remove(self, paths: list[Path]) -> None:
        try:
            for path in paths:
                self._files.unlink(path)
        except OSError as error:
            logger.warning("%s keeps old metadata: %s", self._directory, error)

    @contextmanager
    def _ended_by_failure(self) -> Iterator[None]:
        """A step of a snapshot: what it raises ends the snapshot, for whoever waits for that. A
        refusal of the disk is expected; anything else is raised on."""
        try:
            yield
        except BaseException as failure:
            if self._under_way is not None:
                self._fail(failure)
            if not isinstance(failure, OSError | ApiError):
                raise

    def _fail(self, error: BaseException) -> None:
        logger.warning("no snapshot of the metadata in %s: %s", self._directory, error)
        promise, self._under_way = self._under_way, None
        assert promise is not None
        promise.fail(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
