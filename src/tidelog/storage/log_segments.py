"""The segments of one log, in order, and the files that wait for their removal."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from random import Random

from tidelog.storage.compaction.segment_swap import finish_swap
from tidelog.storage.log_config import LogConfig
from tidelog.storage.segment.file_names import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_path
from tidelog.storage.segment.log_slice import LogSlice, TimestampOffset
from tidelog.storage.segment.segment import RELATIVE_OFFSET_MAX, Segment
from tidelog.storage.segment.transaction_index import AbortedTransaction
from tidelog.world.files import Files

_base_offset_of = attrgetter("base_offset")


class LogSegments:
    """Ascending by base offset and never empty; the last segment is the active one.

    Of the closed segments at most one is kept open: thousands of logs share the descriptors of
    their process.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        config: LogConfig,
        segments: list[Segment],
        random: Random,
    ) -> None:
        self.all = segments
        self.active = segments[-1]
        self._files = files
        self._directory = directory
        self._config = config
        self._random = random
        self._reading: Segment | None = None  # the closed segment that is kept open
        self._deleted: list[tuple[int, Path]] = []  # when to unlink, and what

    def configure(self, config: LogConfig) -> None:
        self._config = config
        for segment in self.all:
            segment.configure(config)

    def slot_of(self, offset: int) -> int:
        """Which segment covers `offset` (the first one for offsets before all)."""
        return max(bisect_right(self.all, offset, key=_base_offset_of) - 1, 0)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segments from the one that covers `offset` on."""
        return self.all[self.slot_of(offset) :]

    def must_roll(
        self, size_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int
    ) -> bool:
        """Whether an append does not belong into the active segment."""
        active = self.active
        if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not active.size_bytes:
            return False
        # Time counts from the first records' timestamps, or from the segment's own age.
        if active.rolling_timestamp_ms >= 0:
            waited_ms = max_timestamp_ms - active.rolling_timestamp_ms
        else:
            waited_ms = now_ms - active.created_ms
        return (
            active.size_bytes + size_bytes > self._config.segment_bytes
            or waited_ms > self._config.roll_ms - active.roll_jitter_ms
            or active.has_full_index
        )

    # Finding

    def read(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int,
        log_end_offset: int,
        minimum_one_batch: bool,
    ) -> LogSlice | None:
        """See `Log.read`; None when no batch lies between `offset` and `max_offset`."""
        active = self.active
        if offset >= active.base_offset:
            return active.read(offset, max_bytes, max_offset, log_end_offset, minimum_one_batch)
        slot = self.slot_of(offset)
        while slot < len(self.all) and self.all[slot].base_offset < max_offset:
            segment = self.all[slot]
            slot += 1
            end_offset = log_end_offset if slot == len(self.all) else self.all[slot].base_offset
            self._keep_open(segment)
            found = segment.read(offset, max_bytes, max_offset, end_offset, minimum_one_batch)
            if found is not None:
                return found
        return None

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
        """The first record from `start_offset` on with a timestamp at or after the given one."""
        try:
            for segment in self.from_offset(start_offset):
                if segment.size_bytes and segment.max_timestamp >= timestamp_ms:
                    found = segment.find_timestamp(timestamp_ms, start_offset)
                    if found is not None:
                        return found
        finally:
            self.release_closed()
        return None

    def max_timestamp(self, start_offset: int) -> TimestampOffset | None:
        """The first record from `start_offset` on with the largest timestamp."""
        try:
            newest = max(self.from_offset(start_offset), key=attrgetter("max_timestamp"))
            if newest.max_timestamp < 0:
                return None
            return newest.find_timestamp(newest.max_timestamp, start_offset)
        finally:
            self.release_closed()

    def aborted_transactions(
        self, start_offset: int, upper_offset: int
    ) -> list[AbortedTransaction]:
        """Those that overlap [start_offset, upper_offset), by first offset."""
        found: list[AbortedTransaction] = []
        for segment in self.from_offset(start_offset):
            aborted, is_complete = segment.transaction_index.collect(start_offset, upper_offset)
            found += aborted
            if is_complete:
                break
        found.sort(key=attrgetter("first_offset"))
        return found

    def _keep_open(self, segment: Segment) -> None:
        if segment is not self.active and segment is not self._reading:
            if self._reading is not None:
                self._reading.release()
            self._reading = segment

    def release_closed(self) -> None:
        for segment in self.all:
            if segment is not self.active and segment is not self._reading:
                segment.release()

    def release(self) -> None:
        """Lets go of all files; slices in flight keep theirs."""
        self._reading = None
        for segment in self.all:
            segment.release()

    # Changing. All of these raise OSError.

    def roll(self, base_offset: int, now_ms: int, *, preallocates: bool = True) -> None:
        """Begins a new active segment; an empty one before it goes.

        When the disk refuses, the log goes on in the segment that it has, and the new one's files
        must not stay: a start would take them for the log's end.
        """
        previous = self.active
        segment = self._new(base_offset, now_ms)
        preallocates = preallocates and self._config.preallocate
        try:
            segment.create(self._config.segment_bytes if preallocates else 0)
        except OSError:
            if base_offset != previous.base_offset:
                self._remove_unmade(segment)
            raise
        if not previous.size_bytes:
            self.discard([previous], now_ms)
        self.all.append(segment)
        self.active = segment
        if previous.size_bytes:
            self._keep_open(previous)  # readers of the tail are still in it

    def _remove_unmade(self, segment: Segment) -> None:
        """As far as the disk lets us; loading drops what stays."""
        segment.release()
        for path in segment.paths():
            try:
                self._files.unlink(path)
            except OSError:
                pass

    def truncate_to(self, offset: int) -> None:
        """Drops what `Segment.truncate_to` drops, and all later segments."""
        slot = self.slot_of(offset)
        segment = self.active = self.all[slot]
        if self._reading is segment:
            self._reading = None
        self.discard(self.all[slot + 1 :], None)
        segment.truncate_to(offset)

    def start_over(self, offset: int) -> list[Segment]:
        """One empty segment at `offset` in place of all, in memory only; returns the old ones.

        Their files go by `remove_files` and the new ones come by `create_files`. Where that is
        refused, the segment is there already, and its first append makes its file.
        """
        old = self.all.copy()
        self.active = self._new(offset, old[-1].created_ms)
        self.all[:] = [self.active]
        self._reading = None
        return old

    def remove_files(self, old: list[Segment]) -> None:
        """Marks the files of segments that are out of the log already for deletion at once."""
        for segment in old:
            self._deleted += [(0, path) for path in segment.mark_deleted()]

    def create_files(self) -> None:
        """Makes the files of the active segment, which is empty."""
        self.active.create(self._config.segment_bytes if self._config.preallocate else 0)

    def replace(self, base_offset: int, old_base_offsets: Sequence[int]) -> bool:
        """Steps 2 and 3 of `segment_swap`: a new segment in place of old ones.

        Returns False, with nothing done, when the old ones are not closed segments of this log.
        Needs no room on the disk: files go, or take names that are there.
        """
        slot = self.slot_of(old_base_offsets[0])
        old = self.all[slot : slot + len(old_base_offsets)]
        if [segment.base_offset for segment in old] != list(old_base_offsets):
            return False
        if self.active in old:
            return False
        replaced, *merged = old
        self.discard(merged, None)
        self.all.remove(replaced)
        if self._reading is replaced:
            self._reading = None
        # Right before the new file gets the name: where that stood in the directory is free then.
        self._deleted += [(0, path) for path in replaced.make_way()]
        finish_swap(self._files, self._directory, base_offset)
        self.all.insert(slot, self._open(base_offset))
        return True

    def discard(self, segments: list[Segment], now_ms: int | None) -> None:
        """Takes segments out of the log; their files go after the delay (at once without time)."""
        deadline_ms = 0 if now_ms is None else now_ms + self._config.file_delete_delay_ms
        for segment in segments:
            self.all.remove(segment)
            if self._reading is segment:
                self._reading = None
            self._deleted += [(deadline_ms, path) for path in segment.mark_deleted()]

    def take_deletable_files(self, now_ms: int) -> list[Path]:
        due = [path for deadline_ms, path in self._deleted if deadline_ms <= now_ms]
        self._deleted = [entry for entry in self._deleted if entry[0] > now_ms]
        return due

    def _new(self, base_offset: int, now_ms: int) -> Segment:
        config = self._config
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        return Segment(
            self._files,
            self._directory,
            base_offset,
            config,
            size_bytes=0,
            created_ms=now_ms,
            roll_jitter_ms=self._random.randrange(jitter_ms) if jitter_ms > 0 else 0,
        )

    def _open(self, base_offset: int) -> Segment:
        status = self._files.stat(segment_path(self._directory, base_offset, LOG_SUFFIX))
        transactions = segment_path(self._directory, base_offset, TRANSACTION_INDEX_SUFFIX)
        return Segment(
            self._files,
            self._directory,
            base_offset,
            self._config,
            size_bytes=status.st_size,
            created_ms=int(status.st_mtime * 1000),
            has_transaction_index=self._files.exists(transactions),
        )
