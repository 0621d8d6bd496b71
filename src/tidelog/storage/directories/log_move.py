"""One log on its way to another log directory of the node.

    copy      pieces of the log into a log of its own, in a folder `orders-0.<id>-future` of the
              destination; reading on the destination's maintenance thread, appending on the loop;
              no more a second than the throttle allows
    sync      what was copied, in the background
    swap      on the loop: the rest (one piece at most), synced; a mark beside the folder that says
              where the log comes from; the destination's offset checkpoints; then the rename to
              `orders-0`, which is what decides; then the old folder is deleted as any other

Before the rename is on disk a start finds the old folder, and removes the copy. After it there may
be two folders of the partition; the mark tells that the new one counts, and that it holds all that
was acknowledged. The mark goes when the deletion of the old folder is in its journal.

A destination may have held the partition before. Its journal must have settled that deletion first:
replaying it would delete the log that has come back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.protocol.errors import ApiError
from tidelog.protocol.record_batch import read_header
from tidelog.protocol.uuids import format_uuid
from tidelog.storage.directories.partition_directory import (
    future_directory_name,
    is_deleted_directory,
    moved_mark_name,
    partition_directory_name,
    was_directory_of,
)
from tidelog.storage.directories.partition_metadata import write_topic_id
from tidelog.storage.files import NO_SPACE, replace_file
from tidelog.storage.log_loading import open_log
from tidelog.world import World

if TYPE_CHECKING:
    from tidelog.byte_throttle import ByteThrottle
    from tidelog.storage.directories.serving_directory import ServingDirectory
    from tidelog.storage.flush import Flush
    from tidelog.storage.journal.journal import Post
    from tidelog.storage.log import Log
    from tidelog.storage.segment.log_slice import FileSlice

logger = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 20


class LogMove:
    """Loop thread. `ended(new log)` is called once, with None when the log stays where it is."""

    def __init__(
        self,
        world: World,
        log: Log,
        origin: ServingDirectory,
        destination: ServingDirectory,
        *,
        post: Post,
        ended: Callable[[LogMove, Log | None], None],
        throttle: ByteThrottle | None = None,
    ) -> None:
        """Makes the folder of the copy. Raises OSError."""
        self.log = log
        self.destination = destination
        self._world = world
        self._files = world.files
        self._origin = origin
        self._post = post
        self._ended = ended
        self._throttle = throttle
        self._generation = origin.journal.generation(log)
        self._settled_lsn: int | None = None  # up to where the destination must be checkpointed
        self._is_working = False
        self._has_synced = False
        self.is_over = False
        path = destination.directory.path / future_directory_name(log.topic_partition, world.random)
        self.future = open_log(
            path,
            log.topic_partition,
            # Nothing of the copy counts before the swap, which syncs it as a whole.
            replace(log.config, durability="page-cache"),
            world=world,
            topic_id=log.topic_id,
            clean=True,
        )
        self.future.truncate_fully_and_start_at(log.log_start_offset)
        destination.journal.fence(lambda lsn: post(partial(self._note_fence, lsn)))

    @property
    def offset_lag(self) -> int:
        return self.log.log_end_offset - self.future.log_end_offset

    def advance(self) -> None:
        """Goes on with the move, as far as it need not wait."""
        if self.is_over or self._is_working:
            return
        if not self._can_go_on():
            self.cancel("a directory is offline or the log was truncated")
            return
        try:
            self._advance()
        except (OSError, ApiError) as error:
            self._failed(error)

    def cancel(self, reason: str) -> None:
        """The log stays where it is; the copy goes."""
        if not self.is_over:
            logger.info("%s stays where it is: %s", self.log.directory, reason)
            self.is_over = True
            self.future.release()
            self.destination.remove_later(self.future.directory)
            self._ended(self, None)

    def _can_go_on(self) -> bool:
        return (
            self._origin.directory.online
            and self.destination.directory.online
            and self._origin.journal.generation(self.log) == self._generation
        )

    def _advance(self) -> None:
        offset, piece = self._next_piece()
        if offset < self.log.log_end_offset:
            assert piece is not None, f"{self.log} has no batches from {offset} on"
            if self._throttle is not None and self._throttle.is_exceeded:
                self._throttle.when_open(self.advance)
                return
            self._work(partial(self._copy, piece))
        elif not self._has_synced:
            flush = self.future.local.prepare_flush(self.future.log_end_offset)

            def run() -> Callable[[], None]:
                flush.run()
                return partial(self._synced, flush)

            self._work(run)
        elif self._is_destination_settled() and self._is_origin_unmarked():
            self._swap()

    def _next_piece(self) -> tuple[int, FileSlice | None]:
        """Where the copy goes on, and with what; at the log's end when nothing is left, or, after
        the sync, so little that the swap takes it along."""
        log = self.log
        offset = max(self.future.log_end_offset, log.log_start_offset)
        found = log.read(offset, _PIECE_BYTES, log.log_end_offset)
        if self._has_synced and found.next_offset >= log.log_end_offset:
            return log.log_end_offset, None
        return (offset if found.size_bytes else log.log_end_offset), found.file_slice

    def _work(self, job: Callable[[], Callable[[], None]]) -> None:
        """Runs a job on the destination's maintenance thread, and on the loop what it returns."""
        self._is_working = True

        def run() -> None:
            try:
                then = job()
            except OSError as error:
                then = partial(self._failed, error)
            self._post(partial(self._worked, then))

        self.destination.work(run)

    def _worked(self, then: Callable[[], None]) -> None:
        self._is_working = False
        if not self.is_over:
            try:
                then()
            except (OSError, ApiError) as error:
                self._failed(error)
            self.advance()

    def _copy(self, piece: FileSlice) -> Callable[[], None]:
        try:
            data = piece.read(self._files)
        except OSError as error:
            return partial(self._origin_failed, error)
        return partial(self._append, data)

    def _append(self, data: bytes) -> None:
        batches = memoryview(data)
        base_offset = read_header(batches, 0).base_offset
        if not self.future.size_bytes and base_offset < self.future.log_end_offset:
            self.future.truncate_fully_and_start_at(base_offset)  # the log starts inside a batch
        self.future.append_as_follower(batches)
        if self._throttle is not None:
            self._throttle.record(len(data))

    def _synced(self, flush: Flush) -> None:
        self.future.local.finish_flush(flush)
        self._has_synced = True

    def _note_fence(self, lsn: int) -> None:
        self._settled_lsn = lsn
        if lsn < 0:
            self.cancel("the journal of the destination has failed")

    def _is_destination_settled(self) -> bool:
        """Whether nothing of an earlier stay of the partition is left in the destination."""
        if self._settled_lsn is None or self.destination.is_checkpointing:
            return False
        if self.destination.journal.journal_files.replay_lsn < self._settled_lsn:
            self.destination.checkpoint()
            return False
        topic_partition = self.log.topic_partition
        return not any(
            name == partition_directory_name(topic_partition)
            or (is_deleted_directory(name) and was_directory_of(name, topic_partition))
            for name in self._files.listdir(self.destination.directory.path)
        )

    def _is_origin_unmarked(self) -> bool:
        """Whether the mark of an earlier move, which would speak for the origin, is gone for good.

        It may be the destination that it names.
        """
        path = self._origin.directory.path
        try:
            if self._files.exists(path / moved_mark_name(self.log.topic_partition)):
                return False
            self._files.sync_directory(path)
        except OSError as error:
            self._origin_failed(error)
            return False
        return True

    # The swap

    def _swap(self) -> None:
        log, future, files = self.log, self.future, self._files
        directory = self.destination.directory
        path = directory.path / partition_directory_name(log.topic_partition)
        self._copy_rest()
        if self.is_over:
            return
        future.local.take_over_producers(log.local)
        future.flush()
        write_topic_id(files, future.directory, log.topic_id)
        future.log_start_offset = log.log_start_offset
        future.release()
        files.sync_directory(future.directory)
        replace_file(
            files,
            directory.path / moved_mark_name(log.topic_partition),
            format_uuid(self._origin.directory.directory_id).encode(),
        )
        self.destination.write_offsets(future)
        try:
            files.rename(future.directory, path)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise  # nothing has changed, and the copy goes
            self._swap_failed(path, error)
            return
        try:
            files.sync_directory(directory.path)
            moved = open_log(
                path,
                log.topic_partition,
                log.config,
                world=self._world,
                topic_id=log.topic_id,
                log_start_offset=log.log_start_offset,
                clean=True,
            )
        except OSError as error:
            self._swap_failed(path, error)
            return
        assert moved.log_end_offset == log.log_end_offset, f"{moved} is not {log}"
        self.is_over = True
        self._ended(self, moved)

    def _copy_rest(self) -> None:
        log, future = self.log, self.future
        while future.log_end_offset < log.log_end_offset:
            offset = max(future.log_end_offset, log.log_start_offset)
            piece = log.read(offset, _PIECE_BYTES, log.log_end_offset).file_slice
            if piece is None:
                future.truncate_fully_and_start_at(log.log_end_offset)  # retention took the rest
            else:
                self._copy(piece)()
                if self.is_over:
                    return

    def _swap_failed(self, path: Path, error: OSError) -> None:
        """The next start may find either of the two, so neither may take more records."""
        self.is_over = True
        self.log.storage_error = f"{path}: {error}"
        self.destination.fail(error)
        self._ended(self, None)

    def _origin_failed(self, error: OSError) -> None:
        self._origin.storage_error(error)
        self.cancel(str(error))

    def _failed(self, error: OSError | ApiError) -> None:
        if isinstance(error, OSError):
            self.destination.storage_error(error)
        self.cancel(str(error))
