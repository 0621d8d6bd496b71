"""The journal of one log directory, as the loop thread sees it.

Appends collect in a group until `commit` hands the group to a worker at the end of a loop turn.
While it syncs one group the next ones queue up, and it takes all that wait at once. What has become
durable comes back in one call per sync through `post`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.storage.files import OpenFile
from tidelog.storage.flush import Flush
from tidelog.storage.journal.files import JournalFiles
from tidelog.storage.journal.format import FrameKind
from tidelog.storage.journal.group import (
    Append,
    Fence,
    Item,
    JournaledLog,
    Mark,
    Sync,
    Synced,
    WrittenGroup,
)
from tidelog.storage.journal.writer import JournalWriter
from tidelog.storage.store_options import StoreOptions
from tidelog.world import World
from tidelog.world.workers import OnCrash, Worker

if TYPE_CHECKING:
    from tidelog.storage.log import Log

Post = Callable[[Callable[[], None]], None]


class Journal:
    """Makes the appends of a directory's logs durable: the commit sink of these logs.

    All methods are for the loop thread, but for those that say otherwise.
    `waiting_bytes` counts batches that were submitted and are not durable yet, and
    `bytes_since_checkpoint` all that were submitted since the last one began.
    """

    def __init__(
        self,
        world: World,
        directory: Path,
        options: StoreOptions,
        *,
        next_sequence: int,
        next_lsn: int,
        maintenance: Worker,
        post: Post,
        on_failure: Callable[[OSError], None],
        on_progress: Callable[[], None],
        on_crash: OnCrash,
    ) -> None:
        self._directory = directory
        self._maintenance = maintenance
        self._post = post
        self._on_failure = on_failure
        self._on_progress = on_progress
        self._states: dict[Log, JournaledLog] = {}
        self._truncated: dict[Log, dict[str, OpenFile]] = {}
        self._truncations_under_way = 0
        self._pending: list[Item] = []
        self.waiting_bytes = 0
        self.bytes_since_checkpoint = 0
        self.failed = False
        self._world = world
        self.journal_files = JournalFiles(
            world,
            directory,
            file_bytes=options.journal_file_bytes,
            spares_max=options.journal_spares_max,
            next_sequence=next_sequence,
            next_lsn=next_lsn,
        )
        self._writer = JournalWriter(
            world.files,
            self.journal_files,
            self.journal_files.start(
                min(options.journal_first_file_bytes, options.journal_file_bytes)
            ),
            direct_sync_bytes=options.direct_sync_bytes,
            want_next_file=lambda: maintenance.submit(self._prepare_next_file),
        )
        self._groups: deque[list[Item]] = deque()
        self._job_is_due = False
        self._worker = world.start_worker(f"tidelog-journal {directory}", on_crash)

    @property
    def unsettled_bytes(self) -> int:
        """How much of the journal a recovery would have to replay."""
        return self._writer.written_lsn - self.journal_files.replay_lsn

    @property
    def disk_full(self) -> bool:
        """No room for another journal file: until there is, segments are synced directly."""
        return self._writer.disk_full

    # The logs

    def attach(self, log: Log, *, identity_synced: bool = True) -> None:
        """Takes a log on. A new one needs `sync_identity`, which may come later."""
        self._states[log] = JournaledLog(log, identity_synced, self._world.make_lock())
        log.sink = self

    def sync_identity(self, log: Log) -> None:
        """Makes a new log's directory and partition.metadata durable, unless they are."""
        state = self._states.get(log)
        if state is not None and not state.identity_synced:
            self._writer.sync_identity(state)

    def run_flush(self, log: Log, flush: Flush) -> None:
        """Runs the flush of a checkpoint; any thread. Raises OSError, and then the journal ends."""
        state = self._states.get(log)
        if state is not None:  # else it was deleted, and nobody waits for it
            self._writer.run_flush(state, flush)

    def has_changed(self, log: Log) -> bool:
        """Whether anything happened to the log since it was attached."""
        return self._states[log].has_changed

    def detach(self, log: Log) -> None:
        """Lets a log go of which the journal holds no frames."""
        self._states.pop(log).removed = True
        log.sink = None

    def delete(self, log: Log, done: Callable[[OSError | None], None]) -> None:
        """Lets a log go; `done` hears when its frames cannot come back."""
        state = self._states.pop(log)
        state.generation += 1
        state.removed = True
        log.sink = None
        self._pending.append(Mark(FrameKind.DELETION, state, -1, done))

    # The commit sink

    def submit(
        self, log: Log, batches: memoryview, base_offset: int, next_offset: int, leader_epoch: int
    ) -> None:
        size_bytes = len(batches)
        self.waiting_bytes += size_bytes
        self.bytes_since_checkpoint += size_bytes
        state = self._states[log]
        state.journaled = True
        # A frame covers the offsets from the log's end before it, which a follower of a compacted
        # log may have to leap over: so replay knows every gap for what it is.
        offset = min(base_offset, state.end_offset)
        state.end_offset = next_offset
        self._pending.append(
            Append(state, log.segments[-1].open(), batches, offset, next_offset, leader_epoch)
        )

    def note_truncation(
        self, log: Log, offset: int, noted: Callable[[ApiError | None], None]
    ) -> None:
        """The segments may change only when the mark is on disk: recovery takes a log that ends
        below its recovery point, or below where the journal goes on, for damaged."""
        # First, for it may fail, and frames of a log that was not cut must not begin at the cut.
        cut_file = log.local.segments.from_offset(offset)[0].open()
        state = self._states[log]
        state.generation += 1
        state.end_offset = offset
        self._truncated.setdefault(log, {})[cut_file.path] = cut_file
        self._truncations_under_way += 1
        within = log.log_start_offset < offset <= log.log_end_offset
        kind = FrameKind.TRUNCATION if within else FrameKind.RESTART

        def finish(error: OSError | None) -> None:
            self._truncations_under_way -= 1
            if error is not None:
                noted(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._directory}: {error}"))
            elif state.removed:
                noted(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log} is not here any more"))
            else:
                noted(None)

        self._pending.append(Mark(kind, state, offset, finish, cut_file))
        self.commit()

    @property
    def is_truncating(self) -> bool:
        """Whether a truncation is on its way to the disk: a checkpoint now would take the log for
        whole, and have the journal forget the mark."""
        return self._truncations_under_way > 0

    def sync(self, log: Log, data_files: Sequence[OpenFile]) -> None:
        """Syncs what the journal does not hold, before later frames that come on top of it."""
        state = self._states[log]
        state.end_offset = log.log_end_offset
        self._pending.append(Sync(state, data_files, log.log_end_offset))

    # Groups

    def commit(self) -> None:
        """Hands over everything submitted so far; cheap when there is nothing."""
        if not self._pending:
            return
        self._groups.append(self._pending)
        self._pending = []
        # A job that is due takes all groups that wait. It lowers the flag before it looks, so what
        # comes after that look gets a job of its own.
        if not self._job_is_due:
            self._job_is_due = True
            self._worker.submit(self._write_groups)

    def fence(self, passed: Callable[[int], None]) -> None:
        """Tells, when all that was submitted so far is durable, at which LSN it ends.

        `passed` hears -1 when the journal has failed.
        """
        self.bytes_since_checkpoint = 0
        self._pending.append(Fence(passed))
        self.commit()

    def take_truncated(self) -> dict[Log, dict[str, OpenFile]]:
        """The logs that were truncated since the last call, with the files that got shorter."""
        truncated, self._truncated = self._truncated, {}
        return truncated

    def take_journaled(self, log: Log) -> bool:
        """Whether frames of the log were written since the last call."""
        state = self._states[log]
        journaled, state.journaled = state.journaled, False
        return journaled

    def checkpoint_failed(
        self, logs: Iterable[Log], truncated: dict[Log, dict[str, OpenFile]]
    ) -> None:
        """Takes back what `take_truncated` and `take_journaled` gave for a checkpoint."""
        for log in logs:
            if log in self._states:
                self._states[log].journaled = True
        for log, cut_files in truncated.items():
            self._truncated[log] = cut_files | self._truncated.get(log, {})

    def generation(self, log: Log) -> int:
        """Changes with every truncation of the log."""
        return self._states[log].generation

    def synced(self, log: Log, closed_paths: Sequence[str], generation: int) -> None:
        """A checkpoint has synced these files of segments that were closed when it began."""
        state = self._states.get(log)
        if state is not None and closed_paths:
            self._pending.append(Synced(state, closed_paths, generation))

    def settle_checkpoint(self, lsn: int, done: Callable[[OSError | None], None]) -> None:
        """The segments hold everything below `lsn`: says so on disk, then frees journal files."""

        def settled(error: OSError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._maintenance.submit(partial(self._release, lsn, done))

        self._pending.append(Mark(FrameKind.CHECKPOINT, None, lsn, settled))
        self.commit()

    def _release(self, lsn: int, done: Callable[[OSError | None], None]) -> None:
        error: OSError | None = None
        try:
            self.journal_files.release_below(lsn)
        except OSError as failure:
            error = failure
        self._post(partial(done, error))

    # The end, when the loop has ended: here the caller waits

    def drain(self) -> int:
        """Makes durable what was submitted; returns where the journal ends, -1 if it has failed."""
        self.commit()
        self._worker.drain()
        return -1 if self._writer.error is not None else self._writer.written_lsn

    def settle_at_end(self, lsn: int) -> None:
        """As `settle_checkpoint`, after `drain`. Raises OSError."""
        self._writer.write_group([Mark(FrameKind.CHECKPOINT, None, lsn)])
        if self._writer.error is not None:
            raise self._writer.error
        self.journal_files.release_below(lsn)

    def close(self) -> None:
        """Makes durable what was submitted and ends; completions still go to `post`."""
        self.commit()
        self._worker.close()
        self.journal_files.close()

    # Beside the loop, and back

    def _write_groups(self) -> None:
        self._job_is_due = False
        items: list[Item] = []
        while self._groups:
            items += self._groups.popleft()
        if not items:
            return
        try:
            written = self._writer.write_group(items)
        except BaseException as error:
            # A bug, which ends the node; all who wait for the group are told before that.
            self._post(partial(self._completed, self._writer.give_up(items, error), items))
            raise
        self._post(partial(self._completed, written, items))

    def _completed(self, written: WrittenGroup, group: list[Item]) -> None:
        error = self._writer.error
        if error is not None and not self.failed:
            self.failed = True
            self._on_failure(error)
        self.waiting_bytes -= sum(len(item.batches) for item in group if type(item) is Append)
        for state, generation, next_offset in written.completions:
            if state.generation == generation:
                state.log.mark_durable(next_offset)
        for call in written.calls:
            self._post(call)
        self._on_progress()

    def _prepare_next_file(self) -> None:
        try:
            self.journal_files.prepare_next()
        except OSError:
            # The writer tries again when it needs the file, and decides what the error means.
            pass
