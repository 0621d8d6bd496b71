"""What a log has on disk: its segments, and what is written down beside them about their batches.

Leader epochs and producers follow from the batches, so what changes the batches changes them too:
here, and in the short way of an append (`Log.append_as_leader`). The offsets that others see (log
start, log end, durable offset) are the log's. Everything runs on the loop thread and may raise
OSError; the log decides what that means.
"""

from __future__ import annotations

import errno
from pathlib import Path

from tidelog.protocol.records import decode_records
from tidelog.storage.files import NO_SPACE
from tidelog.storage.flush import Flush
from tidelog.storage.leader_epochs import LeaderEpochCache
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_segments import LogSegments
from tidelog.storage.offset_gaps import OffsetGaps
from tidelog.storage.placed_batches import PlacedBatches
from tidelog.storage.producer_state.producer_state import ProducerStates
from tidelog.storage.producer_state.replay import note_batch, replay
from tidelog.storage.producer_state.snapshot import SnapshotFiles
from tidelog.storage.segment.segment import Segment
from tidelog.world.files import Files


class LocalLog:
    """Segments, leader epochs and producers of one log, with the files of all of them.

    Everything below `recovery_point` is synced in the segment files. The producers are those as of
    the end of the log.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        config: LogConfig,
        *,
        segments: LogSegments,
        leader_epochs: LeaderEpochCache,
        producers: ProducerStates,
        snapshots: SnapshotFiles,
        gaps: OffsetGaps,
        recovery_point: int,
    ) -> None:
        self.directory = directory
        self.segments = segments
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.gaps = gaps
        self.recovery_point = recovery_point
        self.files = files
        self._config = config
        self._snapshots = snapshots
        self._truncation_count = 0

    def configure(self, config: LogConfig) -> None:
        self._config = config
        self.segments.configure(config)

    # Appending

    def append(self, placed: PlacedBatches, now_ms: int) -> None:
        """Writes batches to the active segment, and notes what they say of epochs and producers.

        When the write fails nothing has changed but the epochs, and perhaps the segment is rolled.
        """
        for header in placed.headers:
            epoch = header.partition_leader_epoch
            if epoch > self.leader_epochs.latest_epoch:
                self.leader_epochs.assign(epoch, header.base_offset)
        segment = self.segment_for(
            len(placed.batches),
            placed.first_offset,
            placed.next_offset - 1,
            placed.max_timestamp_ms,
            now_ms,
        )
        segment.append_batches(
            placed.batches, [(h.size_bytes, h.last_offset, h.max_timestamp) for h in placed.headers]
        )
        for header, batch in placed.each():
            aborted = note_batch(
                self.producers,
                header,
                lambda b=batch, h=header: decode_records(b, h),  # type: ignore[misc]
            )
            if aborted is not None:
                segment.transaction_index.append(aborted)

    def segment_for(
        self,
        size_bytes: int,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        now_ms: int,
    ) -> Segment:
        """The active segment, after rolling when the append does not belong into it."""
        segments = self.segments
        if segments.must_roll(size_bytes, last_offset, max_timestamp_ms, now_ms):
            self.roll(base_offset, now_ms)
        return segments.active

    def roll(self, base_offset: int, now_ms: int) -> None:
        """Closes the active segment and begins a new one."""
        active = self.segments.active
        if self._config.preallocate:
            active.trim()
        if active.size_bytes:
            active.seal()
            self._snapshots.take(self.producers)
        self.segments.roll(base_offset, now_ms)

    def roll_expired(self, base_offset: int, now_ms: int) -> None:
        """The same where nothing of the closed segment stays, which is therefore not completed.

        It has to work when the disk is full, for it comes before room is made: then the segment's
        indexes give theirs for the snapshot of the producers, of whom it has the last batch only.
        """
        segments = self.segments
        try:
            self._snapshots.take(self.producers)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            segments.active.empty_indexes()
            self._snapshots.take(self.producers, batches_max=1)
        segments.roll(base_offset, now_ms, preallocates=False)

    # Truncation

    def truncate_to(self, offset: int, end_offset: int) -> None:
        """Cuts the segments; `end_offset` is what `Segment.truncation_point` says of `offset`.

        `restore` has to follow. When the segments cannot be cut, it may be tried again.
        """
        self._truncation_count += 1
        self.segments.truncate_to(offset)
        self.recovery_point = min(self.recovery_point, end_offset)

    def restore(self, log_start_offset: int, log_end_offset: int) -> None:
        """Takes producers and leader epochs back to the end of the log."""
        self._snapshots.load(self.producers, log_start_offset, log_end_offset)
        replay(self.producers, self.segments.all, log_end_offset, index_aborted_from=log_end_offset)
        # Last, because a full disk refuses to write the file: the rest has to agree by then.
        self.leader_epochs.truncate_to(log_end_offset)

    def start_over(self, offset: int) -> list[Segment]:
        """Empties the log, in memory only; returns the segments that `remove_emptied` removes."""
        self._truncation_count += 1
        old = self.segments.start_over(offset)
        self.recovery_point = offset
        self.producers.clear(offset)
        return old

    def remove_emptied(self, old: list[Segment]) -> None:
        """Removes what would come back with the next start if no recovery preceded it."""
        try:
            self.segments.remove_files(old)
            self._snapshots.remove(self._snapshots.offsets)
        except OSError as error:
            # Whatever the reason, this does not pass: the files are forgotten here.
            raise OSError(errno.EIO, f"an emptied log keeps old files ({error})") from error
        self.leader_epochs.clear()
        self.segments.create_files()

    def delete_oldest(self, count: int, now_ms: int) -> None:
        """Takes segments out; their files are renamed, and unlinked later."""
        segments = self.segments
        segments.discard(segments.all[:count], now_ms)
        first_offset = segments.all[0].base_offset
        self._snapshots.remove(o for o in self._snapshots.offsets if o < first_offset)

    def take_over_producers(self, other: LocalLog) -> None:
        """Knows the producers of a log of which this one is a copy, from the next flush on.

        Retention may have removed the batches that some of them are known from.
        """
        end_offset = self.producers.map_end_offset
        assert other.producers.map_end_offset == end_offset, f"not a copy of {other.directory}"
        self.producers.load([state.copy() for state in other.producers.active()], end_offset)
        self._snapshots.remove(o for o in self._snapshots.offsets if o >= end_offset)
        # The snapshot is a part of a flush, which has to have something to do.
        self.recovery_point = max(0, min(self.recovery_point, end_offset - 1))

    # Flushing

    def prepare_flush(self, log_end_offset: int) -> Flush:
        """What to sync so that everything up to the log end is on disk."""
        epochs = self.leader_epochs
        flush = Flush(
            self.files, self.directory, log_end_offset, self._truncation_count, epochs.version
        )
        if self.recovery_point < log_end_offset:
            for segment in self.segments.from_offset(self.recovery_point):
                segment.write_out_indexes()
                flush.add_file(segment.open())
                for path in segment.index_paths():
                    flush.add_path(path)
            # Recovery starts from producers as of the recovery point.
            flush.add_path(self._snapshots.take(self.producers))
        if epochs.synced_version < epochs.version:
            flush.add_path(epochs.path)
        return flush

    def finish_flush(self, flush: Flush) -> None:
        """After `flush.run()` succeeded: moves the recovery point.

        A flush that a truncation has overtaken moves nothing. Raises OSError when a snapshot that
        is not needed any more cannot be removed; all else is done then.
        """
        self.leader_epochs.synced_version = flush.epochs_version
        self.segments.release_closed()
        if flush.truncations == self._truncation_count:
            self.recovery_point = max(self.recovery_point, flush.offset)
            needed = {segment.base_offset for segment in self.segments.all}
            self._snapshots.remove(
                o for o in self._snapshots.offsets if o < flush.offset and o not in needed
            )

    def close(self) -> None:
        """Writes what the next open needs to do without recovery, and lets go of all files."""
        active = self.segments.active
        if active.size_bytes:
            active.seal()
            if self._config.preallocate:
                active.trim()
        self._snapshots.take(self.producers)
        self.segments.release()
