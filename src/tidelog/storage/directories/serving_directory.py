"""A log directory in service: its journal, its checkpoints, its maintenance thread."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from tidelog.storage.directories.checkpointer import (
    Checkpointer,
    HighWatermarkOf,
    OffsetCheckpoints,
)
from tidelog.storage.directories.clean_shutdown import write_clean_shutdown
from tidelog.storage.directories.log_directory import LogDirectory
from tidelog.storage.directories.partition_directory import (
    deleted_directory_name,
    remove_partition_directory,
    stray_directory_name,
)
from tidelog.storage.files import NO_SPACE, TEMPORARY_SUFFIX
from tidelog.storage.journal.journal import Journal, Post
from tidelog.storage.log import Log
from tidelog.storage.recovery import RecoveredDirectory
from tidelog.storage.store_options import StoreOptions
from tidelog.world import World
from tidelog.world.workers import OnCrash

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

_PROBE_NAME = "room-probe" + TEMPORARY_SUFFIX
_PROBE_BYTES = 1 << 20

# These pass without harm to the disk's content: the write is refused and may be tried again.
_TRANSIENT_ERRORS = NO_SPACE | {errno.EMFILE, errno.ENFILE, errno.EINTR}


class ServingDirectory:
    """Keeps the logs of one directory durable. Loop thread, but for what the worker runs."""

    def __init__(
        self,
        world: World,
        directory: LogDirectory,
        options: StoreOptions,
        recovered: RecoveredDirectory,
        *,
        post: Post,
        high_watermark_of: HighWatermarkOf,
        on_failure: Callable[[ServingDirectory], None],
        on_room_changed: Callable[[], None],
        on_crash: OnCrash,
    ) -> None:
        self._world = world
        self._files = files = world.files
        self._options = options
        self._post = post
        self._high_watermark_of = high_watermark_of
        self._on_failure = on_failure
        self._on_room_changed = on_room_changed
        self._on_crash = on_crash
        self._has_crashed = False
        self._checkpointed_ms = world.wall_ms()
        self._told_of_trouble = False  # so that a full disk does not fill the log too
        self._sync_threads = options.sync_threads
        self._deletions_under_way = 0
        self._is_looking_for_room = False
        self._removed_in_place: set[Path] = set()  # for want of room for another name
        self._removals_to_retry: list[Callable[[], None]] = []
        self._maintenance_error: OSError | None = None
        self.directory = directory
        self.is_full = False
        """Since something was refused for want of room; until there is room for more than that."""
        if not recovered.clean:
            # The old journal may go only when the segments are known to hold what it held.
            OffsetCheckpoints(directory.logs, high_watermark_of).write(files, directory)
        self._maintenance = world.start_worker(
            f"tidelog-maintenance {directory.path}", self._crashed
        )
        self.journal = Journal(
            world,
            directory.path,
            options,
            next_sequence=recovered.next_sequence,
            next_lsn=recovered.next_lsn,
            maintenance=self._maintenance,
            post=post,
            on_failure=self._fail,
            on_progress=self._checkpoint_when_due,
            on_crash=self._crashed,
        )
        self._checkpointer = Checkpointer(
            world,
            directory,
            self.journal,
            self._maintenance,
            post=post,
            sync_threads=self._sync_threads,
            high_watermark_of=high_watermark_of,
            on_failure=self._fail,
        )
        for log in directory.logs.values():
            self.add(log)
        for path in recovered.deleted:
            self._maintenance.submit(partial(self._remove_directory, path))

    # Logs

    def set_sync_threads(self, count: int) -> None:
        """How many files are synced side by side from now on."""
        self._sync_threads = self._checkpointer.sync_threads = count

    def add(self, log: Log, *, is_new: bool = False) -> None:
        """Takes a log into service."""
        self.directory.logs[log.topic_partition] = log
        log.on_storage_error = lambda _, error: self.storage_error(error)
        self.journal.attach(log, identity_synced=not is_new)
        if is_new:
            self._maintenance.submit(partial(self._sync_identity, log))

    def delete(self, log: Log, noted: Callable[[], None] | None = None) -> None:
        """Renames the log's directory, so that the partition is gone, and removes it later.

        A full disk may have no room for another name. Then the directory keeps its own until it is
        removed, and only the journal says that it is deleted, which it has to for as long.
        `noted` is called, on the maintenance thread, when no crash can bring the log back.
        """
        topic_partition = log.topic_partition
        target = self.directory.path / deleted_directory_name(topic_partition, self._world.random)
        del self.directory.logs[topic_partition]
        log.release()
        remove: Callable[[], None] | None = None
        try:
            if self.directory.online:
                self._files.rename(log.directory, target)
                remove = partial(self._remove_deleted, target, noted)
        except OSError as error:
            if error.errno in NO_SPACE:
                self._removed_in_place.add(log.directory)
                remove = partial(self._remove_in_place, log.directory, noted)
            else:
                self.storage_error(error)

        def remove_when_noted(error: OSError | None) -> None:
            if error is None and remove is not None:
                self._deletions_under_way -= 1
                self._maintenance.submit(remove)

        self._deletions_under_way += 1
        self.journal.delete(log, remove_when_noted)

    @property
    def is_deleting(self) -> bool:
        """Whether a crash may still bring back a log that was deleted."""
        return self._deletions_under_way > 0 or bool(self._removed_in_place)

    def is_being_removed(self, path: Path) -> bool:
        """Whether a log that had this directory is deleted, and its files are not gone yet."""
        return path in self._removed_in_place

    def set_aside(self, log: Log) -> Path:
        """Takes a log out of service and renames its directory to one that is left alone.

        For a log that nothing was appended to since it was opened. Raises OSError.
        """
        target = self.directory.path / stray_directory_name(log.topic_partition, self._world.random)
        self._files.rename(log.directory, target)
        self._files.sync_directory(self.directory.path)
        if self.directory.logs.get(log.topic_partition) is log:
            del self.directory.logs[log.topic_partition]
        log.release()
        self.journal.detach(log)
        return target

    def discard_directory(self, path: Path) -> None:
        """Removes what a creation that failed has left."""
        try:
            remove_partition_directory(self._files, path)
        except OSError as error:
            logger.warning("%s cannot be removed: %s", path, error)

    def remove_later(self, path: Path) -> None:
        """Removes a folder that no log uses, in the background."""
        self._maintenance.submit(partial(self._remove_directory, path))

    def remove_file_later(self, path: Path) -> None:
        self._maintenance.submit(partial(self._remove_files, [path]))

    def work(self, job: Callable[[], None]) -> None:
        """Runs a job on the maintenance thread, where an exception is a bug."""
        self._maintenance.submit(job)

    def sync(self, log: Log) -> None:
        """Makes durable what a page-cache log has written, before anything that comes on top."""
        unsynced = log.local.segments.from_offset(log.local.recovery_point)
        self.journal.sync(log, [segment.open() for segment in unsynced])

    # Time and failure

    def checkpoint(self) -> None:
        # One that ends lets the journal forget which logs are deleted.
        if self.directory.online and not self._removed_in_place:
            self._checkpointer.begin()

    def write_offsets(self, arriving: Log) -> None:
        """Writes the offset checkpoints at once, with those of a log that is about to come here.

        Only while no checkpoint is under way, which would write them without it. Raises OSError.
        """
        logs = {**self.directory.logs, arriving.topic_partition: arriving}
        OffsetCheckpoints(logs, self._high_watermark_of).write(self._files, self.directory)

    @property
    def is_checkpointing(self) -> bool:
        return self._checkpointer.running

    def maintain(self, now_ms: int) -> None:
        """Timed work: a checkpoint, and the removal of files that retention has renamed."""
        if not self.directory.online:
            return
        is_due = now_ms - self._checkpointed_ms >= self._options.checkpoint_interval_ms
        if is_due and not self.journal.is_truncating:
            self._checkpointed_ms = now_ms
            self._told_of_trouble = False
            self.checkpoint()
        retried, self._removals_to_retry = self._removals_to_retry, []
        for removal in retried:
            self._maintenance.submit(removal)
        paths = [
            path
            for log in self.directory.logs.values()
            for path in log.local.segments.take_deletable_files(now_ms)
        ]
        if paths:
            self._maintenance.submit(partial(self._remove_files, paths))
        if self.is_full and not self._is_looking_for_room:
            self._is_looking_for_room = True
            self._maintenance.submit(self._look_for_room)

    def storage_error(self, error: OSError) -> None:
        """An append or a creation failed: a full disk may heal, a broken one goes offline."""
        if error.errno not in _TRANSIENT_ERRORS:
            self._fail(error)
            return
        if not self._told_of_trouble:
            self._told_of_trouble = True
            logger.warning(
                "%s: writes are refused until this ends: %s", self.directory.path, str(error)
            )
        if error.errno in NO_SPACE:
            self._set_full(True)

    def _set_full(self, is_full: bool) -> None:
        if self.is_full != is_full:
            self.is_full = is_full
            self._on_room_changed()

    def fail(self, error: OSError) -> None:
        """Takes the directory offline, whatever the error."""
        self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self.directory.online:
            return
        self.directory.error = text = f"{self.directory.path}: {error}"
        for log in self.directory.logs.values():
            log.storage_error = text
        self._on_failure(self)

    def _crashed(self, thread: str, error: BaseException) -> None:
        """A background thread has met a bug: what it left undone is a matter for recovery."""
        self._has_crashed = True
        self._on_crash(thread, error)

    def _checkpoint_when_due(self) -> None:
        journal = self.journal
        if (
            journal.unsettled_bytes >= self._options.checkpoint_journal_bytes
            or journal.bytes_since_checkpoint >= self._options.checkpoint_appended_bytes
        ):
            self.checkpoint()

    # The end

    def close(self, *, clean: bool) -> None:
        """Ends the threads. Clean: flushes and closes the logs and says that nothing is open."""
        end_lsn = -1
        if self.directory.online:
            end_lsn = self.journal.drain()
        self._maintenance.close()
        try:
            if self._maintenance_error is not None:
                # The last jobs run when no loop is left that would take the directory offline.
                raise self._maintenance_error
            if (
                clean
                and end_lsn >= 0
                and self.directory.online
                and not self._has_crashed
                and not self._removed_in_place
            ):
                self._close_logs(end_lsn)
        except OSError as error:
            logger.error("%s was not closed cleanly: %s", self.directory.path, error)
        finally:
            self.journal.close()

    def _close_logs(self, end_lsn: int) -> None:
        cut_files = [
            file for files in self.journal.take_truncated().values() for file in files.values()
        ]
        # The filesystem merges syncs that run side by side, so many logs close in little time.
        self._do_all(lambda file: self._files.fdatasync(file.fd), cut_files)
        self._do_all(self._close_log, self.directory.logs.values())
        offsets = OffsetCheckpoints(self.directory.logs, self._high_watermark_of)
        self._files.sync_directory(self.directory.path)
        offsets.write(self._files, self.directory)
        self.journal.settle_at_end(end_lsn)
        write_clean_shutdown(self._files, self.directory.path)

    def _do_all(self, work: Callable[[Item], None], items: Iterable[Item]) -> None:
        for _ in self._world.side_by_side(work, items, threads=self._sync_threads):
            pass

    def _close_log(self, log: Log) -> None:
        log.flush()
        log.close()
        if self.journal.has_changed(log):
            # Truncation and retention cut and rename without a sync, and that of a new log's
            # identity may have found no room.
            self.journal.sync_identity(log)
            self._files.fdatasync(log.segments[-1].open().fd)
            self._files.sync_directory(log.directory)
            log.release()

    # On the maintenance thread

    def _look_for_room(self) -> None:
        """Tries it out, as the free space says nothing of quotas and inodes. What is asked for is
        more than most appends are refused: a disk that is nearly full is left in peace."""
        path = self.directory.path / _PROBE_NAME
        has_room = False
        try:
            _, usable_bytes = self._files.disk_usage(self.directory.path)
            if usable_bytes >= _PROBE_BYTES:
                has_room = self._fits(path)
        except OSError as error:
            self._post(partial(self.storage_error, error))
        self._post(partial(self._looked_for_room, has_room))

    def _fits(self, path: Path) -> bool:
        fd = self._files.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            self._files.fallocate(fd, 0, _PROBE_BYTES)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            return False
        finally:
            self._files.close(fd)
            self._files.unlink(path)
        return True

    def _looked_for_room(self, has_room: bool) -> None:
        self._is_looking_for_room = False
        if has_room:
            logger.info("%s: there is room again", self.directory.path)
            self._set_full(False)

    def _sync_identity(self, log: Log) -> None:
        self._attempt(partial(self.journal.sync_identity, log))

    def _remove_files(self, paths: list[Path]) -> None:
        for path in paths:
            self._attempt(partial(self._files.unlink, path))

    def _remove_directory(self, path: Path) -> None:
        self._attempt(partial(remove_partition_directory, self._files, path))

    def _remove_deleted(self, path: Path, noted: Callable[[], None] | None) -> None:
        def remove() -> None:
            if noted is not None:
                # The mark in another directory goes now, so the folder must not get its old name
                # back after that.
                self._files.sync_directory(self.directory.path)
                noted()
            remove_partition_directory(self._files, path)

        self._attempt(remove)

    def _remove_in_place(self, path: Path, noted: Callable[[], None] | None) -> None:
        """Again and again until it is done: the journal cannot let go of anything before."""

        def remove() -> None:
            is_removed = False
            try:
                if self._files.exists(path):
                    remove_partition_directory(self._files, path)
                self._files.sync_directory(self.directory.path)
                if noted is not None:
                    noted()
                is_removed = True
            finally:
                self._post(partial(finish, is_removed))

        def finish(is_removed: bool) -> None:
            if is_removed:
                self._removed_in_place.discard(path)
            else:
                self._removals_to_retry.append(partial(self._remove_in_place, path, noted))

        self._attempt(remove)

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except FileNotFoundError:
            pass  # deleted since
        except OSError as error:
            if error.errno not in _TRANSIENT_ERRORS:
                self._maintenance_error = error
            self._post(partial(self.storage_error, error))
