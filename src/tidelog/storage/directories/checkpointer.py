"""Checkpoints of one log directory: sync the segments, write it down, free the journal.

    loop          prepare: which files, up to which offset, for every log
    journal       fence: at which LSN that moment lies
    maintenance   sync the files; write the offset checkpoints; say so in the journal; free files
    loop          finish: move the logs' recovery points

Appends go on meanwhile; what they add lies behind the fence and waits for the next checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.directories.log_directory import LogDirectory
from tidelog.storage.directories.offset_checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    write_offsets,
)
from tidelog.storage.files import NO_SPACE, OpenFile
from tidelog.storage.flush import Flush
from tidelog.storage.journal.journal import Journal, Post
from tidelog.storage.log import Log
from tidelog.world import World
from tidelog.world.files import Files
from tidelog.world.workers import Worker

logger = logging.getLogger(__name__)

_FEW_FLUSHES = 16  # that are not worth starting threads for

HighWatermarkOf = Callable[[Log], int]
Truncated = dict[Log, dict[str, OpenFile]]


class LogFlush:
    """One log's part in a checkpoint."""

    __slots__ = ("closed_paths", "flush", "generation", "log")

    def __init__(self, log: Log, flush: Flush, closed_paths: list[str], generation: int) -> None:
        self.log = log
        self.flush = flush
        self.closed_paths = closed_paths
        self.generation = generation


class OffsetCheckpoints:
    """The offsets that a checkpoint writes down, taken on the loop thread."""

    __slots__ = ("high_watermarks", "log_start_offsets", "recovery_points")

    def __init__(self, logs: dict[TopicPartition, Log], high_watermark_of: HighWatermarkOf) -> None:
        self.recovery_points = {tp: log.local.recovery_point for tp, log in logs.items()}
        self.log_start_offsets = {
            tp: log.log_start_offset
            for tp, log in logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
        self.high_watermarks = {tp: high_watermark_of(log) for tp, log in logs.items()}

    def write(self, files: Files, directory: LogDirectory) -> None:
        """Recovery points come first: a log never starts above what is known to be on disk."""
        write_offsets(files, directory.path / RECOVERY_POINTS, self.recovery_points)
        write_offsets(files, directory.path / LOG_START_OFFSETS, self.log_start_offsets)
        write_offsets(files, directory.path / HIGH_WATERMARKS, self.high_watermarks)


class Checkpointer:
    """Runs the checkpoints of a directory, one at a time; loop thread."""

    def __init__(
        self,
        world: World,
        directory: LogDirectory,
        journal: Journal,
        maintenance: Worker,
        *,
        post: Post,
        sync_threads: int,
        high_watermark_of: HighWatermarkOf,
        on_failure: Callable[[OSError], None],
    ) -> None:
        self._world = world
        self._files = world.files
        self._directory = directory
        self._journal = journal
        self._maintenance = maintenance
        self._post = post
        self.sync_threads = sync_threads
        self._high_watermark_of = high_watermark_of
        self._on_failure = on_failure
        self.running = False

    def begin(self) -> None:
        """Starts a checkpoint unless one is running or a truncation is under way.

        On a full disk it does nothing.
        """
        if self.running or self._journal.is_truncating:
            return
        due = [log for log in self._directory.logs.values() if self._is_due(log)]
        truncated = self._journal.take_truncated()
        try:
            flushes = [self._prepare(log) for log in due]
            for log in truncated:
                if self._directory.logs.get(log.topic_partition) is log:
                    # The file by which an emptied log is found again; it may still be missing.
                    log.active_segment.open()
        except OSError as error:
            self._journal.checkpoint_failed(due, truncated)
            self._failed(error)
            return
        offsets = OffsetCheckpoints(self._directory.logs, self._high_watermark_of)
        for part in flushes:
            offsets.recovery_points[part.log.topic_partition] = part.flush.offset
        self.running = True

        def passed(lsn: int) -> None:
            if lsn >= 0:
                self._maintenance.submit(partial(self._run, lsn, flushes, truncated, offsets))

        self._journal.fence(passed)

    def _is_due(self, log: Log) -> bool:
        """What the journal holds must be synced before the journal forgets it. Otherwise logs in
        the page cache leave their active segment to the kernel, as Kafka does."""
        journaled = self._journal.take_journaled(log) or log.config.durability == "fsync"
        return log.local.recovery_point < (
            log.log_end_offset if journaled else log.segments[-1].base_offset
        )

    def _prepare(self, log: Log) -> LogFlush:
        closed = [
            str(segment.path)
            for segment in log.local.segments.from_offset(log.local.recovery_point)[:-1]
        ]
        return LogFlush(
            log, log.local.prepare_flush(log.log_end_offset), closed, self._journal.generation(log)
        )

    def _failed(self, error: OSError) -> None:
        if error.errno in NO_SPACE:
            logger.warning(
                "%s: no checkpoint, the disk is full (%s)", self._directory.path, str(error)
            )
        else:
            self._on_failure(error)

    def _run(
        self, lsn: int, flushes: list[LogFlush], truncated: Truncated, offsets: OffsetCheckpoints
    ) -> None:
        try:
            self._sync(flushes, truncated)
        except OSError as failure:
            self._post(partial(self._on_failure, failure))
            return
        finish = partial(self._finish, flushes, truncated)
        try:
            offsets.write(self._files, self._directory)
        except OSError as failure:
            self._post(partial(finish, failure))
        else:
            self._post(partial(self._journal.settle_checkpoint, lsn, finish))

    def _sync(self, flushes: list[LogFlush], truncated: Truncated) -> None:
        if len(flushes) < _FEW_FLUSHES:
            for part in flushes:
                self._journal.run_flush(part.log, part.flush)
        else:
            # The filesystem merges syncs that run side by side.
            for _ in self._world.side_by_side(
                lambda part: self._journal.run_flush(part.log, part.flush),
                flushes,
                threads=self.sync_threads,
            ):
                pass
        for log, cut_files in truncated.items():
            self._sync_truncated(log, cut_files)
        self._files.sync_directory(self._directory.path)

    def _sync_truncated(self, log: Log, cut_files: dict[str, OpenFile]) -> None:
        """What a truncation removed must stay away when the journal forgets about it."""
        for file in cut_files.values():
            self._files.fdatasync(file.fd)
        try:
            self._files.sync_directory(log.directory)
        except FileNotFoundError:
            pass  # deleted since

    def _finish(self, flushes: list[LogFlush], truncated: Truncated, error: OSError | None) -> None:
        self.running = False
        if error is not None:
            self._journal.checkpoint_failed([part.log for part in flushes], truncated)
            self._failed(error)
        for part in flushes:
            try:
                # Else a recovery begins where it did before, and compaction must leave that alone.
                if error is None:
                    part.log.local.finish_flush(part.flush)
                    part.log.local.gaps.forget_below(part.log.local.recovery_point)
            except OSError as failure:
                self._failed(failure)
            self._journal.synced(part.log, part.closed_paths, part.generation)
