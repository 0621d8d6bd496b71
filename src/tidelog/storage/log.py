"""The log of one partition: an ordered sequence of segments of which the last is written.

Theory of operation. A batch is validated where it lies in the receive buffer, stamped with its
offset and leader epoch, written to the active segment with one `pwrite`, and handed to the commit
sink, which makes it durable. Offsets obey

    log_start_offset <= durable_offset <= log_end_offset

and readers choose their own upper bound (high watermark, last stable offset). Everything runs on
the loop thread; only the system calls named in `Flush.run` and the removal of deleted files go
to other threads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.append_result import AppendResult, Origin
from tidelog.storage.commit_sink import CommitSink
from tidelog.storage.files import OpenFile
from tidelog.storage.leader_epochs import LeaderEpochCache
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_slice import LogSlice, TimestampOffset
from tidelog.storage.producer_state import ProducerStates
from tidelog.storage.segment import Segment
from tidelog.storage.transaction_index import AbortedTransaction


class Flush:
    """The files that hold everything below `offset` and are not yet known to be on disk."""

    offset: int
    files: list[OpenFile]

    def run(self) -> None:
        """Syncs the files; callable on any thread, raises OSError."""


class Log:
    """One partition's log. Open one with `log_loading.open_log` (which also creates)."""

    topic_partition: TopicPartition
    topic_id: bytes
    directory: Path
    log_start_offset: int
    log_end_offset: int
    durable_offset: int
    recovery_point: int  # everything below is synced in the segment files (moved by flushes)
    leader_epochs: LeaderEpochCache
    producers: ProducerStates
    sink: CommitSink | None  # without one (or with durability="page-cache") appends count at once
    on_durable: Callable[[Log], None] | None
    segments: list[Segment]  # by base offset; never empty; the last one is active

    config: LogConfig  # settable

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is still open; None when there is none."""

    @property
    def size_bytes(self) -> int: ...

    def append_as_leader(
        self,
        batches: memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 1,
    ) -> AppendResult:
        """Validates, stamps in place, writes. Raises ApiError; all or nothing is applied.

        `batches` must be writable and belongs to the log afterwards (the sink may keep it).
        """

    def append_as_follower(self, batches: memoryview) -> AppendResult:
        """Appends batches whose offsets and epochs a leader (or the journal) has set already."""

    def read(
        self, offset: int, max_bytes: int, max_offset: int, *, minimum_one_batch: bool = True
    ) -> LogSlice:
        """Whole batches from the one that holds `offset`, up to `max_offset` (exclusive)."""

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record with a timestamp at or after the given one."""

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp."""

    def aborted_transactions(
        self, start_offset: int, upper_offset: int
    ) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [start_offset, upper_offset), by first offset."""

    def truncate_to(self, offset: int) -> None: ...

    def truncate_fully_and_start_at(self, offset: int) -> None: ...

    def advance_log_start(self, offset: int) -> None: ...

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Retention by time, size and log start; returns how many segments went."""

    def take_deletable_files(self, now_ms: int) -> list[Path]:
        """Renamed (.deleted) files whose delay has passed: unlink them off the loop thread."""

    def roll(self) -> None: ...

    def prepare_flush(self) -> Flush:
        """Loop thread: what to sync so that everything up to the log end is on disk."""

    def finish_flush(self, flush: Flush) -> None:
        """Loop thread, after `flush.run()`: moves the recovery point."""

    def flush(self) -> None:
        """All three steps of a flush at once (blocks)."""

    def mark_durable(self, offset: int) -> None: ...

    def close(self) -> None:
        """Writes indexes and a producer snapshot, so that the next open needs no recovery."""
