"""The quorum that commits metadata, as long as it is this node alone: its disk decides.

loop      append: the batches get into the segment (page cache)
worker    the segment is synced
loop      `done` hears that they are committed, or that nobody knows
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.storage.append_result import Origin
from tidelog.storage.flush import Flush
from tidelog.storage.log import Log
from tidelog.world import World
from tidelog.world.workers import Worker

Done = Callable[[ApiError | None], None]
PostBack = Callable[[Callable[[], None]], None]


class QuorumOfOne:
    """Appends to the metadata log and syncs it beside the loop; one append is under way at a time.

    `post_back` has its argument called on the loop thread. All other calls belong to that thread.
    """

    def __init__(
        self, world: World, directory: Path, log: Log, worker: Worker, post_back: PostBack
    ) -> None:
        self._files = world.files
        self._clock = world.wall_ms
        self._directory = directory
        self._log = log
        self._worker = worker
        self._post_back = post_back
        self._synced_segment = -1  # base offset of the newest segment whose file is known to last

    def append(self, batches: bytearray, leader_epoch: int, done: Done) -> int:
        """Writes batches, of which `done` hears how they end; returns their last offset.

        Raises ApiError when the disk does not take them: then the log is as it was.
        """
        result = self._log.append_as_leader(
            memoryview(batches), leader_epoch, self._clock(), origin=Origin.RAFT
        )
        segment = self._log.active_segment
        file = segment.open()
        is_new = segment.base_offset != self._synced_segment

        def sync() -> None:
            self._files.fdatasync(file.fd)
            if is_new:
                self._files.sync_directory(self._directory)

        def synced(error: ApiError | None) -> None:
            if error is None:
                self._synced_segment = segment.base_offset
            done(error)

        self._worker.submit(partial(self._run, sync, synced))
        return result.last_offset

    def flush(self, flush: Flush, done: Done) -> None:
        """Syncs all files of the log, for a snapshot.

        On the same worker as the syncs of appends, and as serious when it fails: an error of the
        disk is told once, so it may have been meant for an append that is under way.
        """
        self._worker.submit(partial(self._run, flush.run, done))

    def _run(self, sync: Callable[[], None], done: Done) -> None:
        error: ApiError | None = None
        try:
            sync()
        except OSError as refusal:
            error = self._failure(refusal)
        except BaseException as bug:
            # It ends the node; all who wait are told before that.
            self._post_back(partial(done, self._failure(bug)))
            raise
        self._post_back(partial(done, error))

    def _failure(self, error: BaseException) -> ApiError:
        # Nobody knows what the disk holds now; only reading it again can tell.
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the metadata log {self._directory} could not be synced ({error}): "
            "the node has to be restarted",
        )
