"""The journal of one log directory, as the loop thread sees it.

Appends collect in a group until `commit` hands the group to the writer thread at the end of a loop
turn; while the writer syncs one group the next ones queue up, and it takes all that wait at once.
What has become durable comes back in one call per sync through `post`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.storage.files import Files, OpenFile
from tidelog.storage.flush import Flush
from tidelog.storage.journal_files import JournalFiles
from tidelog.storage.journal_format import FrameKind
from tidelog.storage.journal_writer import (
    Append,
    Completion,
    Fence,
    Item,
    JournaledLog,
    JournalWriter,
    Mark,
    Sync,
    Synced,
    segments_from,
)
from tidelog.storage.store_options import StoreOptions
from tidelog.storage.worker import OnCrash, Worker

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
        files: Files,
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
        self._on_crash = on_crash
        self._thread_name = f"tidelog-journal {directory}"
        self._states: dict[Log, JournaledLog] = {}
        self._truncated: dict[Log, dict[str, OpenFile]] = {}
        self._truncations_under_way = 0
        self._pending: list[Item] = []
        self.waiting_bytes = 0
        self.bytes_since_checkpoint = 0
        self.failed = False
        self.journal_files = JournalFiles(
            files,
            directory,
            file_bytes=options.journal_file_bytes,
            spares_max=options.journal_spares_max,
            next_sequence=next_sequence,
            next_lsn=next_lsn,
        )
        self._writer = JournalWriter(
            files,
            self.journal_files,
            self.journal_files.start(
                min(options.journal_first_file_bytes, options.journal_file_bytes)
            ),
            direct_sync_bytes=options.direct_sync_bytes,
            want_next_file=lambda: maintenance.submit(self._prepare_next_file),
        )
        self._groups: SimpleQueue[list[Item] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        if options.threaded:
            self._thread = threading.Thread(target=self._run, name=self._thread_name, daemon=True)
            self._thread.start()

    @property
    def unsettled_bytes(self) -> int:
        """How much of the tape a recovery would have to replay."""
        return self._writer.written_lsn - self.journal_files.replay_lsn

    @property
    def disk_full(self) -> bool:
        """No room for another journal file: until there is, segments are synced directly."""
        return self._writer.disk_full

    # The logs

    def attach(self, log: Log, *, identity_synced: bool = True) -> None:
        """Takes a log on. A new one needs `sync_identity`, which may come later."""
        self._states[log] = JournaledLog(log, identity_synced)
        log.sink = self

    def sync_identity(self, log: Log) -> None:
        """Makes a new log's directory and partition.metadata durable; maintenance thread."""
        state = self._states.get(log)
        if state is not None:
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
        """Lets a log go; `done` hears (on the writer thread) when its frames cannot come back."""
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
        cut_file = segments_from(log, offset)[0].open()
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

        def written(error: OSError | None) -> None:
            self._post(partial(finish, error))

        if self._thread is not None:
            self._pending.append(Mark(kind, state, offset, written, cut_file))
            self.commit()
        else:
            # The log must not change while the writer is still at work on the group.
            outcomes: list[OSError | None] = []
            self._pending.append(Mark(kind, state, offset, outcomes.append, cut_file))
            self.commit()
            written(*outcomes)

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
        group, self._pending = self._pending, []
        if self._thread is None:
            self._completed(self._writer.write_group(group), group)
        else:
            self._groups.put(group)

    def fence(self, passed: Callable[[int], None]) -> None:
        """Tells, when all that was submitted so far is durable, where on the tape it ends.

        `passed` runs on the writer thread; -1 means that the journal has failed.
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

    def settle_checkpoint(self, lsn: int) -> None:
        """The segments hold everything below `lsn`: says so on disk, then frees journal files.

        Blocks; maintenance thread. Raises OSError.
        """
        outcome: SimpleQueue[OSError | None] = SimpleQueue()
        mark: list[Item] = [Mark(FrameKind.CHECKPOINT, None, lsn, outcome.put)]
        if self._thread is None:
            self._completed(self._writer.write_group(mark), mark)
        else:
            self._groups.put(mark)
        if (error := outcome.get()) is not None:
            raise error
        self.journal_files.release_below(lsn)

    def close(self) -> None:
        """Makes durable what was submitted and ends the thread; completions still go to `post`."""
        self.commit()
        if self._thread is not None:
            self._groups.put(None)
            self._thread.join()
        self.journal_files.close()

    def _run(self) -> None:
        open_ended = True
        while open_ended:
            group = self._groups.get()
            open_ended = group is not None
            items = group or []
            try:
                while open_ended:
                    group = self._groups.get_nowait()
                    open_ended = group is not None
                    items += group or []
            except Empty:
                pass
            if items:
                self._post(partial(self._completed, self._write(items), items))

    def _write(self, items: list[Item]) -> list[Completion]:
        """A group on the journal's thread, which outlives a bug so that all who wait are told."""
        try:
            return self._writer.write_group(items)
        except BaseException as error:  # noqa: BLE001  whatever it is, the node has to know
            self._writer.give_up(items, error)
            self._on_crash(self._thread_name, error)
            return []

    def _completed(self, completions: list[Completion], group: list[Item]) -> None:
        error = self._writer.error
        if error is not None and not self.failed:
            self.failed = True
            self._on_failure(error)
        self.waiting_bytes -= sum(len(item.batches) for item in group if type(item) is Append)
        for state, generation, next_offset in completions:
            if state.generation == generation:
                state.log.mark_durable(next_offset)
        self._on_progress()

    def _prepare_next_file(self) -> None:
        try:
            self.journal_files.prepare_next()
        except OSError:
            # The writer tries again when it needs the file, and decides what the error means.
            pass
