"""The log of one partition: its offsets, and how it is appended to, read and truncated.

Theory of operation. A batch is validated where it lies in the receive buffer, stamped with its
offset and leader epoch, written to the active segment with one `pwrite`, and handed to the commit
sink, which makes it durable. Offsets obey

    log_start_offset <= durable_offset <= log_end_offset

and readers choose their own upper bound (high watermark, last stable offset). Everything runs on
the loop thread; only `Flush.run` and the removal of deleted files belong on other threads.

Segments, leader epochs and producers, with their files, are the `LocalLog`'s. The log decides when
they change, keeps the offsets that others see, and turns failures of the disk into Kafka's errors.

Most appends are one batch of data from a client: `append_as_leader` handles those itself, in a few
microseconds. Everything rarer (several batches, end markers, append time, recompression) and every
append of a follower goes through `LocalLog.append`.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Sequence
from functools import partial

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.record_batch import (
    CONTROL_MASK,
    LOG_OVERHEAD,
    TRANSACTIONAL_MASK,
    iterate_headers,
)
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.storage.append_result import AppendResult, Origin
from tidelog.storage.append_validation import AppendValidator, HeaderFields
from tidelog.storage.commit_sink import CommitSink
from tidelog.storage.files import NO_SPACE
from tidelog.storage.local_log import LocalLog
from tidelog.storage.log_config import LogConfig
from tidelog.storage.placed_batches import PlacedBatches, check_replicated, place
from tidelog.storage.producer_state.check import check_producers
from tidelog.storage.retention import count_deletable
from tidelog.storage.segment.log_slice import LogSlice, TimestampOffset
from tidelog.storage.segment.segment import RELATIVE_OFFSET_MAX, Segment
from tidelog.storage.segment.transaction_index import AbortedTransaction
from tidelog.storage.truncations import Truncated, Truncations, raise_failure

_stamp_placement = struct.Struct(">qii").pack_into  # base offset, batch length, leader epoch


class Log:
    """One partition's log. Open (or create) one with `log_loading.open_log`."""

    def __init__(
        self,
        local: LocalLog,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        *,
        log_start_offset: int,
        log_end_offset: int,
    ) -> None:
        self.local = local
        self.files = local.files
        self.directory = local.directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments = local.segments.all  # by base offset; never empty; the last one is active
        self.leader_epochs = local.leader_epochs
        self.producers = local.producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.durable_offset = log_end_offset
        self.on_durable: Callable[[Log], None] | None = None
        self.on_storage_error: Callable[[Log, OSError], None] | None = None
        self._segments = local.segments
        self._truncations = Truncations(self._choose_check)
        self._sink: CommitSink | None = None
        self._commit: CommitSink | None = None
        self._storage_error: str | None = None
        self.config = config

    def __repr__(self) -> str:
        topic, partition = self.topic_partition
        return f"Log({topic}-{partition}, {self.log_start_offset}..{self.log_end_offset})"

    # Settings

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._validator = AppendValidator(config, self.topic_partition)
        self._choose_check()
        self._segment_bytes = config.segment_bytes
        self._roll_ms = config.roll_ms
        self._rewrites = config.has_append_time or self._validator.recompresses
        self._commit = self._sink if config.durability == "fsync" else None
        self.local.configure(config)
        if config.durability != "fsync":
            self.mark_durable(self.log_end_offset)

    @property
    def sink(self) -> CommitSink | None:
        """Makes appends durable. Without one, and for page-cache topics, they count at once."""
        return self._sink

    @sink.setter
    def sink(self, sink: CommitSink | None) -> None:
        self._sink = sink
        self._commit = sink if self._config.durability == "fsync" else None

    @property
    def storage_error(self) -> str | None:
        """Why the log is offline, set by the store when its directory fails; None while it works.

        An offline log refuses appends, reads and truncation with KAFKA_STORAGE_ERROR.
        """
        return self._storage_error

    @storage_error.setter
    def storage_error(self, problem: str | None) -> None:
        self._storage_error = problem
        self._choose_check()

    @property
    def is_truncating(self) -> bool:
        """A truncation is on its way to the disk: until then the log takes no appends."""
        return self._truncations.are_under_way

    def _choose_check(self) -> None:
        takes_appends = self._storage_error is None and not self.is_truncating
        self._check = self._validator.check if takes_appends else self._refuse

    def _refuse(self, batches: memoryview, at: int, now_ms: int, origin: Origin) -> HeaderFields:
        """Stands in for the validator's check: an append that is taken pays for nothing more."""
        self._require_writable()
        raise AssertionError("a log that is online refuses nothing")

    def _require_writable(self) -> None:
        self._require_online()
        if self.is_truncating:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is being truncated"
            )

    def _require_online(self) -> None:
        if self._storage_error is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self._storage_error)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def active_segment(self) -> Segment:
        return self._segments.active

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is still open; None when there is none."""
        return self.producers.first_unstable_offset

    # Appending

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

        `batches` must be writable and belongs to the log afterwards (the sink may keep it). Costs
        about 6 µs for a small batch, half of it the write; large ones add their CRC and copy into
        the page cache.
        """
        header = self._check(batches, 0, now_ms, origin)
        size_bytes = len(batches)
        attributes = header[5]
        if LOG_OVERHEAD + header[1] != size_bytes or attributes & CONTROL_MASK or self._rewrites:
            return self._append_many(
                batches, header, leader_epoch, now_ms, origin, transaction_version
            )
        base_offset = self.log_end_offset
        last_offset = base_offset + header[6]
        max_timestamp_ms = header[8]
        producer_id = header[9]
        if producer_id >= 0:
            state = self.producers.producers.get(producer_id)
            if state is not None:
                duplicate = state.check_batch(
                    header[10],
                    header[11],
                    header[12],
                    attributes & TRANSACTIONAL_MASK != 0,
                    origin is Origin.CLIENT,
                )
                if duplicate is not None:
                    return AppendResult.of_duplicate(duplicate, self.log_start_offset)
        segment = self._segments.active
        if (
            segment.size_bytes + size_bytes > self._segment_bytes
            or max_timestamp_ms - segment.rolling_timestamp_ms
            > self._roll_ms - segment.roll_jitter_ms
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.has_full_index
            or leader_epoch != self.leader_epochs.latest_epoch
            or max_timestamp_ms < 0
        ):
            segment = self._prepare(
                size_bytes, base_offset, last_offset, max_timestamp_ms, leader_epoch, now_ms
            )
        _stamp_placement(batches, 0, base_offset, header[1], leader_epoch)
        try:
            segment.append(batches, size_bytes, last_offset, max_timestamp_ms)
        except OSError as error:
            raise self._failed_write(error) from error
        next_offset = last_offset + 1
        producers = self.producers
        if producer_id >= 0:
            producers.note_batch(
                producer_id,
                header[10],
                header[11],
                base_offset,
                last_offset,
                max_timestamp_ms,
                attributes & TRANSACTIONAL_MASK != 0,
            )
        producers.map_end_offset = next_offset
        self.log_end_offset = next_offset
        if self._commit is not None:
            self._commit.submit(self, batches, base_offset, next_offset, leader_epoch)
        else:
            self.durable_offset = next_offset
        return AppendResult(
            base_offset, last_offset, -1, self.log_start_offset, max_timestamp_ms, size_bytes
        )

    def append_as_follower(self, batches: memoryview) -> AppendResult:
        """Appends batches whose offsets and epochs a leader (or the journal) has set already.

        Raises ApiError: CORRUPT_MESSAGE, or OFFSET_OUT_OF_RANGE when a batch begins below the
        log end or offsets do not rise.
        """
        self._require_writable()
        placed = check_replicated(batches, self.log_end_offset)
        self.append_replicated(placed)
        return AppendResult(
            placed.first_offset,
            placed.next_offset - 1,
            -1,
            self.log_start_offset,
            self._segments.active.max_timestamp,
            len(batches),
        )

    def append_replicated(self, placed: PlacedBatches) -> None:
        """Appends batches that were found to follow the log's end. Raises ApiError."""
        self._require_writable()
        for run in placed.fitting_segments():
            try:
                self._note_gaps(run)
            except OSError as error:
                raise self._failed_write(error) from error
            self._append_placed(run, run.headers[0].max_timestamp)

    def _note_gaps(self, placed: PlacedBatches) -> None:
        next_offset = self.log_end_offset
        journaled = self._config.durability == "fsync"
        for header in placed.headers:
            if header.base_offset != next_offset:
                self.local.gaps.found(header.base_offset, journaled=journaled)
            next_offset = header.next_offset

    @property
    def has_gap_to_recover(self) -> bool:
        """Whether offsets are missing above the recovery point, as in a copy of a compacted log.

        A recovery cannot tell that from records that were lost, and takes everything from there on
        out of the journal: it has to be there. Logs without one have their `OffsetGaps` noted.
        """
        return self.local.gaps.end_offset >= self.local.recovery_point

    def _append_many(
        self,
        batches: memoryview,
        first_header: HeaderFields,
        leader_epoch: int,
        now_ms: int,
        origin: Origin,
        transaction_version: int,
    ) -> AppendResult:
        """The general form of `append_as_leader`, entered with the first batch checked."""
        at = LOG_OVERHEAD + first_header[1]
        while at < len(batches):
            at += LOG_OVERHEAD + self._check(batches, at, now_ms, origin)[1]
        self._require_fits_segment(len(batches))
        batches = self._validator.recompress(batches)
        found = list(iterate_headers(batches))
        duplicate = check_producers(self.producers, batches, found, origin, transaction_version)
        if duplicate is not None:
            return AppendResult.of_duplicate(duplicate, self.log_start_offset)
        append_time_ms = now_ms if self._config.has_append_time else None
        placed = place(batches, found, self.log_end_offset, leader_epoch, append_time_ms)
        self._append_placed(placed, now_ms)
        return AppendResult(
            placed.first_offset,
            placed.next_offset - 1,
            -1 if append_time_ms is None else append_time_ms,
            self.log_start_offset,
            placed.max_timestamp_ms,
            len(batches),
        )

    def _append_placed(self, placed: PlacedBatches, now_ms: int) -> None:
        try:
            self.local.append(placed, now_ms)
        except OSError as error:
            raise self._failed_write(error) from error
        # From the log's end on, for a copy of a compacted log has gaps.
        before_offset, next_offset = self.log_end_offset, placed.next_offset
        self.log_end_offset = next_offset
        if self._commit is not None:
            self._commit.submit(
                self, placed.batches, before_offset, next_offset, placed.leader_epoch
            )
        else:
            self.durable_offset = next_offset

    def _prepare(
        self,
        size_bytes: int,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        leader_epoch: int,
        now_ms: int,
    ) -> Segment:
        """What an append does first when it is not just the next one: a new epoch, a roll."""
        self._require_fits_segment(size_bytes)
        try:
            if leader_epoch > self.leader_epochs.latest_epoch:
                self.leader_epochs.assign(leader_epoch, base_offset)
            return self.local.segment_for(
                size_bytes, base_offset, last_offset, max_timestamp_ms, now_ms
            )
        except OSError as error:
            raise self._failed_write(error) from error

    def _require_fits_segment(self, size_bytes: int) -> None:
        if size_bytes > self._segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size_bytes} bytes do not fit a segment of {self._segment_bytes}",
            )

    def _failed_write(self, error: OSError) -> ApiError:
        self._segments.active.cut_failed_write()
        return self._failed(error)

    def _failed(self, error: OSError) -> ApiError:
        if self.on_storage_error is not None:
            self.on_storage_error(self, error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {error}")

    # Durability

    def mark_durable(self, offset: int) -> None:
        """Everything below `offset` survives a power cut now. Loop thread only."""
        if offset > self.durable_offset:
            self.durable_offset = min(offset, self.log_end_offset)
            if self.on_durable is not None:
                self.on_durable(self)

    def flush(self) -> None:
        """All three steps of a flush at once: blocks until the disk has everything."""
        flush = self.local.prepare_flush(self.log_end_offset)
        flush.run()
        self.local.finish_flush(flush)

    # Reading

    def read(
        self, offset: int, max_bytes: int, max_offset: int, *, minimum_one_batch: bool = True
    ) -> LogSlice:
        """Whole batches from the one that holds `offset`, up to `max_offset` (exclusive).

        At most `max_bytes`, but the first batch is given even when it is larger (unless
        `minimum_one_batch` is false). The bytes come from one segment. Raises
        ApiError(OFFSET_OUT_OF_RANGE) below the log start or above the log end.
        """
        if self._storage_error is not None:
            self._require_online()
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.log_start_offset} to {end_offset}",
            )
        if offset >= max_offset or offset == end_offset:
            return LogSlice(offset, offset, None)
        try:
            found = self._segments.read(
                offset, max_bytes, max_offset, end_offset, minimum_one_batch
            )
        except OSError as error:
            raise self._failed(error) from error
        return LogSlice(offset, offset, None) if found is None else found

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record (from the log start on) with a timestamp at or after the given one."""
        self._require_online()
        try:
            return self._segments.find_timestamp(timestamp_ms, self.log_start_offset)
        except OSError as error:
            raise self._failed(error) from error

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp; None when no record has one."""
        self._require_online()
        try:
            return self._segments.max_timestamp(self.log_start_offset)
        except OSError as error:
            raise self._failed(error) from error

    def aborted_transactions(
        self, start_offset: int, upper_offset: int
    ) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [start_offset, upper_offset), by first offset."""
        self._require_online()
        try:
            return self._segments.aborted_transactions(start_offset, upper_offset)
        except OSError as error:
            raise self._failed(error) from error

    # Rolling, truncation, retention

    def roll(self, now_ms: int) -> None:
        """Closes the active segment (unless it is empty) and begins a new one. Raises OSError."""
        if self._segments.active.size_bytes:
            self.local.roll(self.log_end_offset, now_ms)

    def truncate_to(self, offset: int, done: Truncated = raise_failure) -> None:
        """Drops everything from `offset` on (a batch that holds it goes as a whole).

        The log end is `offset` afterwards, or the start of that batch. `done` is called when that
        is so, or with what went wrong: an ApiError when the sink could not note it, and nothing has
        changed; an OSError, after which it may be tried again. With a sink this takes a sync of the
        disk, which the loop does not wait for: until then the log is as it was and takes no
        appends. Without one all of it happens at once. Raises ApiError and OSError when it does not
        even begin.
        """
        self._require_online()
        if self.is_truncating:
            self._truncations.wait(partial(self.truncate_to, offset, done), done)
            return
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_to(offset)
            done(None)
            return
        if offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset, done)
            return
        end_offset = self.segments[self._segments.slot_of(offset)].truncation_point(offset)
        if end_offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(end_offset, done)
            return
        self._truncations.run(self, end_offset, partial(self._cut, offset, end_offset), done)

    def truncate_fully_and_start_at(self, offset: int, done: Truncated = raise_failure) -> None:
        """Empties the log; the next record gets `offset`. When and how is as with `truncate_to`.

        Once it is noted the log is empty whatever the disk says, because recovery will empty it.
        `done` gets an OSError when the disk refuses a part of it: a new file that could not be made
        comes with the next append, old ones that could not be removed take the directory offline.
        """
        self._require_online()
        if self.is_truncating:
            self._truncations.wait(partial(self.truncate_fully_and_start_at, offset, done), done)
            return
        self._truncations.run(self, offset, partial(self._start_over, offset), done)

    def _cut(self, offset: int, end_offset: int) -> None:
        self.local.truncate_to(offset, end_offset)
        self.log_end_offset = end_offset
        self.durable_offset = min(self.durable_offset, end_offset)
        self.local.restore(self.log_start_offset, end_offset)

    def _start_over(self, offset: int) -> None:
        old = self.local.start_over(offset)
        self.log_start_offset = offset
        self.log_end_offset = offset
        self.durable_offset = offset
        try:
            self.local.remove_emptied(old)
        except OSError as error:
            self._failed(error)
            raise

    def advance_log_start(self, offset: int) -> None:
        """Hides the records below `offset`; retention removes their segments later.

        Raises ApiError: OFFSET_OUT_OF_RANGE when the log does not reach so far, KAFKA_STORAGE_ERROR
        when its directory is offline.
        """
        self._require_writable()
        if offset > self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the log cannot start at {offset}: it ends at {self.log_end_offset}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.durable_offset = max(self.durable_offset, offset)
            self.leader_epochs.advance_start(offset)

    def expire_producers(self, now_ms: int) -> None:
        """Forgets producers that have been silent for longer than `producer.id.expiration.ms`."""
        self.producers.remove_expired(now_ms, self.config.producer_id_expiration_ms)

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Applies retention; returns how many segments went.

        Works on a full disk too, of which it is the cure. Raises OSError. The files are renamed
        here and unlinked later: see `LogSegments.take_deletable_files`.
        """
        if self._storage_error is not None or self.is_truncating:
            return 0
        count = count_deletable(
            self.segments,
            self.config,
            now_ms,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
        )
        if count:
            if count == len(self.segments):
                try:
                    self.local.roll_expired(self.log_end_offset, now_ms)
                except OSError as error:
                    if error.errno not in NO_SPACE or count == 1:
                        raise
                    count -= 1  # the last one can go when the others have made room
            self.local.delete_oldest(count, now_ms)
            first_offset = self.segments[0].base_offset
            if first_offset > self.log_start_offset:
                self.advance_log_start(first_offset)
        self._segments.release_closed()
        return count

    def replace_segments(self, base_offset: int, old_base_offsets: Sequence[int]) -> bool:
        """Puts the segment that `segment_swap.begin_swap` made ready in place of old ones.

        Returns False, with nothing done, when the old segments are not closed segments of this
        log any more. A full disk does not refuse it. Raises OSError when the disk fails: then what
        `begin_swap` made ready has to stay, for some of the old segments are gone, and the next
        start finishes the swap. Readers of the old segments go on undisturbed.
        """
        if self._storage_error is not None or self.is_truncating:
            return False
        try:
            return self._segments.replace(base_offset, old_base_offsets)
        except OSError as error:
            # Whatever the reason, this does not pass: segments are forgotten here.
            failure = OSError(errno.EIO, f"segments are half replaced ({error})")
            self._failed(failure)
            raise failure from error

    # The end

    def close(self) -> None:
        """Writes the indexes and a producer snapshot, so that the next open needs no recovery.

        Nothing is synced: `flush()` first where that matters. Raises OSError. The log must not
        be used afterwards.
        """
        self.local.close()

    def release(self) -> None:
        """Lets go of all files, without writing; slices in flight keep theirs."""
        self._segments.release()
