"""The cleaner: chooses which compacted log to clean next, and swaps in what compaction wrote.

Everything here runs on the loop thread and is cheap: the work per record is in `compaction.py`,
which an `Isolated` worker carries out elsewhere, and what has to be synced is synced by the `disk`
worker. One pass is under way at a time. Where each log's dirty part
begins is kept in `cleaner-offset-checkpoint`, a file per log directory in Kafka's format.

A pass needs room for what it writes before it gives any back. When the disk is full its log stays
as it was, and is tried again when no other log is due: a smaller one may find room, and make some.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.compaction.batch_filter import LastRecord
from tidelog.storage.compaction.compaction import (
    CompactedGroup,
    CompactionEnd,
    CompactionEvent,
    CompactionFailure,
    CompactionTask,
    SourceSegment,
)
from tidelog.storage.compaction.segment_swap import begin_swap, undo_swap
from tidelog.storage.directories.offset_checkpoint import read_offsets, write_offsets
from tidelog.storage.files import NO_SPACE, CorruptFileError
from tidelog.storage.log import Log
from tidelog.storage.segment.segment import Segment
from tidelog.world.files import Files
from tidelog.world.workers import NO_RATE_LIMIT, Isolated, Worker

CHECKPOINT_NAME = "cleaner-offset-checkpoint"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DirtyLog:
    """A log that could be cleaned, and how much there would be to gain.

    Invariant: first_dirty_offset <= first_uncleanable_offset, which is a segment's base offset."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """Whether `max.compaction.lag.ms` has passed for a part of it."""

    @property
    def cleanable_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        return self.cleanable_bytes > 0 and (
            self.is_overdue or self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio
        )


@dataclass(slots=True)
class CleaningCounts:
    """What the cleaner has done since the node started, for the metrics."""

    passes: int = 0
    abandoned_passes: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    dirtiest_ratio: float = 0.0


def measure(
    log: Log,
    first_dirty_offset: int,
    last_stable_offset: int,
    now_ms: int,
    *,
    when_synced: bool = False,
) -> DirtyLog:
    """How dirty a log is, given where its dirty part begins and how far it is decided.

    `when_synced`: how dirty it will be when all of it is below the recovery point.
    """
    config = log.config
    closed = log.segments[:-1]
    uncleanable = min(last_stable_offset, log.segments[-1].base_offset)
    if log.sink is not None and not when_synced:
        # Above the recovery point a gap between segments means a torn segment to recovery.
        uncleanable = min(uncleanable, log.local.recovery_point)
    dirty = [
        segment
        for segment, following in zip(closed, log.segments[1:], strict=True)
        if following.base_offset > first_dirty_offset
    ]
    if config.min_compaction_lag_ms > 0:
        newest_ms = now_ms - config.min_compaction_lag_ms
        for segment in dirty:
            if segment.max_timestamp > newest_ms:
                uncleanable = min(uncleanable, segment.base_offset)
                break
    # Only whole segments are cleaned: the bound is the base of the segment that holds it.
    bases = [segment.base_offset for segment in log.segments if segment.base_offset <= uncleanable]
    first_uncleanable = max(bases, default=first_dirty_offset)
    first_uncleanable = max(first_uncleanable, first_dirty_offset)
    cleanable = [segment for segment in dirty if segment.base_offset < first_uncleanable]
    cleanable_bytes = sum(segment.size_bytes for segment in cleanable)
    clean_bytes = sum(segment.size_bytes for segment in closed if segment not in dirty)
    return DirtyLog(
        log,
        first_dirty_offset,
        first_uncleanable,
        clean_bytes,
        cleanable_bytes,
        _is_overdue(cleanable, now_ms - config.max_compaction_lag_ms),
    )


def _is_overdue(segments: list[Segment], oldest_allowed_ms: int) -> bool:
    if oldest_allowed_ms <= 0:
        return False
    return any(0 < segment.first_timestamp() < oldest_allowed_ms for segment in segments)


class Cleaner:
    """Cleans the compacted logs among `logs`, the dirtiest first.

    `want_synced` is called with a log that is due and only waits for its recovery point to move.
    """

    def __init__(
        self,
        logs: Mapping[TopicPartition, Log],
        worker: Isolated[CompactionTask, CompactionEvent],
        disk: Worker,
        files: Files,
        *,
        post: Callable[[Callable[[], None]], None],
        last_stable_offset: Callable[[Log], int],
        want_synced: Callable[[Log], None] = lambda log: None,
        dedupe_buffer_bytes: int = 128 << 20,
        bytes_per_second_max: float = NO_RATE_LIMIT,
    ) -> None:
        self._logs = logs
        self._worker = worker
        self._disk = disk
        self._files = files
        self._post = post
        self._last_stable_offset = last_stable_offset
        self._want_synced = want_synced
        self.dedupe_buffer_bytes = dedupe_buffer_bytes
        self.bytes_per_second_max = bytes_per_second_max
        """The next pass works by these two; they may be changed."""
        self._checkpoints: dict[Path, dict[TopicPartition, int]] = {}
        self._pass: _Pass | None = None
        self.counts = CleaningCounts()
        self.uncleanable: dict[Log, str] = {}
        """Logs whose cleaning failed for good, with the problem; they are left as they are."""
        self._lacking_room: dict[Log, None] = {}  # the one that was tried last comes last
        self._told_of_full: set[Path] = set()  # directories, until a pass gets through

    @property
    def is_busy(self) -> bool:
        return self._pass is not None

    def tick(self, now_ms: int) -> bool:
        """Begins a pass over the dirtiest log, if one is dirty enough and none is under way.
        Returns whether a pass is under way."""
        if self._pass is None:
            chosen = self.dirtiest(now_ms)
            if chosen is not None:
                try:
                    self._begin(chosen, now_ms)
                except OSError as error:
                    _tell_of_disk(chosen.log, error)
        return self._pass is not None

    def dirtiest(self, now_ms: int) -> DirtyLog | None:
        """The log to clean next; None when none is dirty enough.

        Of those for which the disk had no room, when no other is due, the one that waits longest.
        """
        candidates = []
        self.counts.dirtiest_ratio = 0.0
        for log in list(self._logs.values()):
            if not log.config.is_compacted or log.storage_error is not None:
                continue
            if log in self.uncleanable:
                continue
            try:
                dirty = self._look_at(log, now_ms)
            except OSError as error:
                _tell_of_disk(log, error)
                continue
            self.counts.dirtiest_ratio = max(self.counts.dirtiest_ratio, dirty.cleanable_ratio)
            if dirty.is_due:
                candidates.append(dirty)
        places = {log: place for place, log in enumerate(self._lacking_room)}
        return max(
            candidates,
            key=lambda dirty: (
                -places.get(dirty.log, -1),
                dirty.cleanable_ratio,
            ),
            default=None,
        )

    def _look_at(self, log: Log, now_ms: int) -> DirtyLog:
        """How dirty a log is; one that would be due if more of it were synced is to be synced."""
        first_dirty_offset = self.first_dirty_offset(log)
        last_stable_offset = self._last_stable_offset(log)
        dirty = measure(log, first_dirty_offset, last_stable_offset, now_ms)
        if (
            not dirty.is_due
            and log.local.recovery_point < log.segments[-1].base_offset
            and measure(
                log, first_dirty_offset, last_stable_offset, now_ms, when_synced=True
            ).is_due
        ):
            self._want_synced(log)
        return dirty

    def first_dirty_offset(self, log: Log) -> int:
        """Where the part begins that no pass has seen; the log's start when that is unknown.

        Raises OSError."""
        offset = self._checkpoint(log.directory.parent).get(log.topic_partition, -1)
        if log.log_start_offset <= offset <= log.log_end_offset:
            return offset
        return log.log_start_offset

    def close(self) -> None:
        """Ends the pass under way; what it has not swapped in yet is lost."""
        self._pass = None
        self._worker.close()
        self._disk.close()

    def _begin(self, dirty: DirtyLog, now_ms: int) -> None:
        log = dirty.log
        config = log.config
        segments = tuple(
            SourceSegment(str(segment.path), segment.base_offset, segment.size_bytes)
            for segment in log.segments[:-1]
            if segment.base_offset < dirty.first_uncleanable_offset
        )
        task = CompactionTask(
            directory=str(log.directory),
            segments=segments,
            first_dirty_offset=dirty.first_dirty_offset,
            first_uncleanable_offset=dirty.first_uncleanable_offset,
            aborted=tuple(
                log.aborted_transactions(log.log_start_offset, dirty.first_uncleanable_offset)
            ),
            last_records=_last_records(log),
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            index_interval_bytes=config.index_interval_bytes,
            index_bytes_max=config.segment_index_bytes,
            dedupe_buffer_bytes=self.dedupe_buffer_bytes,
            bytes_per_second_max=self.bytes_per_second_max,
        )
        current = _Pass(log)
        self._pass = current
        self._worker.submit(task, lambda event: self._on_event(current, event))

    def _on_event(self, current: _Pass, event: CompactionEvent) -> None:
        current.events.append(event)
        self._go_on(current)

    def _go_on(self, current: _Pass) -> None:
        """Handles the events of a pass one after the other, each to its end."""
        while self._pass is current and current.events and not current.is_waiting:
            event = current.events.popleft()
            if isinstance(event, CompactedGroup):
                self._take(current, event)
            elif isinstance(event, CompactionEnd):
                self._finish(current, event)
            else:
                self._fail(current, event)

    def _take(self, current: _Pass, group: CompactedGroup) -> None:
        log = current.log
        counts = self.counts
        counts.bytes_before += group.bytes_before
        counts.bytes_after += group.bytes_after
        counts.records_before += group.records_before
        counts.records_after += group.records_after
        if not group.changed:
            return
        # Once a group could not be swapped in, those after it must not be either: they may lack the
        # tombstones of what this one still holds.
        if current.is_abandoned or not self._holds(log, group):
            self._abandon(current, group)
            return

        def staged(error: OSError | None) -> None:
            try:
                is_replaced = (
                    error is None
                    and self._is_current(log)
                    and log.replace_segments(group.base_offset, group.old_base_offsets)
                )
            except OSError:
                current.is_abandoned = True
                return
            if not is_replaced:
                self._abandon(current, group)
            if error is not None and self._is_current(log):
                self._refused(log, error)

        def stage() -> None:
            begin_swap(self._files, log.directory, group.base_offset)

        self._on_disk(current, stage, staged)

    def _holds(self, log: Log, group: CompactedGroup) -> bool:
        """Whether the log still has the segments that the group replaces."""
        bases = {segment.base_offset for segment in log.segments[:-1]}
        return self._is_current(log) and bases.issuperset(group.old_base_offsets)

    def _abandon(self, current: _Pass, group: CompactedGroup) -> None:
        current.is_abandoned = True
        directory = current.log.directory
        try:
            undo_swap(self._files, directory, group.base_offset)
        except OSError as error:
            logger.warning("cannot remove the .cleaned files in %s: %s", directory, error)

    def _finish(self, current: _Pass, end: CompactionEnd) -> None:
        if current.is_abandoned:
            self.counts.abandoned_passes += 1
            self._pass = None
            return
        log = current.log
        directory = log.directory.parent
        self._lacking_room.pop(log, None)
        checkpoint = self._checkpoint(directory)
        checkpoint[log.topic_partition] = end.next_dirty_offset
        for gone in [name for name in checkpoint if name not in self._logs]:
            del checkpoint[gone]
        content = dict(checkpoint)

        def saved(error: OSError | None) -> None:
            if error is None:
                if directory in self._told_of_full:
                    self._told_of_full.remove(directory)
                    logger.info("%s: compaction goes on", directory)
            elif error.errno in NO_SPACE:
                self._tell_of_full(directory, error)
            else:
                logger.warning("cannot write %s in %s: %s", CHECKPOINT_NAME, directory, error)
            self.counts.passes += 1
            self._pass = None

        def save() -> None:
            write_offsets(self._files, directory / CHECKPOINT_NAME, content)

        self._on_disk(current, save, saved)

    def _fail(self, current: _Pass, failure: CompactionFailure) -> None:
        log = current.log
        self._pass = None
        self.counts.abandoned_passes += 1
        if failure.is_corrupt:
            logger.error("%s cannot be compacted: %s", log.topic_partition, failure.problem)
            self.uncleanable = {
                other: problem
                for other, problem in self.uncleanable.items()
                if self._is_current(other)
            }
            self.uncleanable[log] = failure.problem
        elif failure.lacks_room:
            self._lacks_room(log, failure.problem)
        elif self._is_current(log):
            logger.warning("compaction of %s ended early: %s", log.topic_partition, failure.problem)

    def _refused(self, log: Log, error: OSError) -> None:
        """The disk did not let a finished segment take the place of old ones."""
        if error.errno in NO_SPACE:
            self._lacks_room(log, error)
        else:
            _tell_of_disk(log, error)

    def _lacks_room(self, log: Log, problem: str | OSError) -> None:
        self._lacking_room.pop(log, None)
        self._lacking_room = {
            other: None for other in self._lacking_room if self._is_current(other)
        }
        self._lacking_room[log] = None
        self._tell_of_full(log.directory.parent, problem)

    def _tell_of_full(self, directory: Path, problem: str | OSError) -> None:
        """Once, or a full disk would fill the log too."""
        if directory not in self._told_of_full:
            self._told_of_full.add(directory)
            logger.warning(
                "%s: compaction waits until the disk has room; the logs stay as they were (%s)",
                directory,
                problem,
            )

    def _on_disk(
        self,
        current: _Pass,
        work: Callable[[], None],
        done: Callable[[OSError | None], None],
    ) -> None:
        """Does `work` on the disk's thread and then calls `done` here, unless closed meanwhile."""
        current.is_waiting = True

        def finished(error: OSError | None) -> None:
            current.is_waiting = False
            if self._pass is current:
                done(error)
                self._go_on(current)

        def job() -> None:
            try:
                work()
            except OSError as raised:
                error = raised
                self._post(lambda: finished(error))
            else:
                self._post(lambda: finished(None))

        self._disk.submit(job)

    def _is_current(self, log: Log) -> bool:
        return self._logs.get(log.topic_partition) is log and log.storage_error is None

    def _checkpoint(self, directory: Path) -> dict[TopicPartition, int]:
        checkpoint = self._checkpoints.get(directory)
        if checkpoint is None:
            path = directory / CHECKPOINT_NAME
            try:
                checkpoint = read_offsets(self._files, path)
            except CorruptFileError as error:
                logger.warning("cleaning starts again from the beginning: %s", error)
                checkpoint = {}
            self._checkpoints[directory] = checkpoint
        return checkpoint


@dataclass(slots=True, eq=False)
class _Pass:
    log: Log
    is_abandoned: bool = False
    is_waiting: bool = False
    events: deque[CompactionEvent] = field(default_factory=deque)


def _tell_of_disk(log: Log, error: OSError) -> None:
    if log.on_storage_error is not None:
        log.on_storage_error(log, error)


def _last_records(log: Log) -> dict[int, LastRecord]:
    return {
        producer.producer_id: LastRecord(producer.last_data_offset, producer.producer_epoch)
        for producer in log.producers.active()
    }
