"""A segment: a run of batches in one .log file, with its indexes beside it.

The file is named by the offset of its first record. Only the last segment of a log is written;
the others never change until they are deleted. A segment opens its file when it is first used and
maps an index when it is first searched, so that a log of many segments costs nothing to open.

The .log file is the truth and the indexes are hints. A position taken from an index is used only
when a batch header that fits the entry stands there; when it does not, the indexes are rebuilt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tidelog.protocol.record_batch import BATCH_OVERHEAD, LOG_OVERHEAD, BatchHeader
from tidelog.protocol.records import Record, decode_records
from tidelog.storage.files import NO_SPACE, OpenFile, write_fully
from tidelog.storage.log_config import LogConfig
from tidelog.storage.segment.batch_scan import (
    WINDOW_BYTES_MIN,
    read_fully,
    scan_headers,
    scan_valid_batches,
)
from tidelog.storage.segment.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)
from tidelog.storage.segment.log_slice import FileSlice, LogSlice, TimestampOffset
from tidelog.storage.segment.offset_index import ENTRY_SIZE_BYTES as OFFSET_ENTRY_BYTES
from tidelog.storage.segment.offset_index import OffsetIndex
from tidelog.storage.segment.time_index import ENTRY_SIZE_BYTES as TIME_ENTRY_BYTES
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.segment.transaction_index import TransactionIndex
from tidelog.world.files import Files

RELATIVE_OFFSET_MAX = (1 << 31) - 1

_POSITIONS_KEPT = 128
_UNKNOWN_TIMESTAMP = -2


class Segment:
    __slots__ = (
        "_bytes_since_index_entry",
        "_fd",
        "_file",
        "_files",
        "_index_interval_bytes",
        "_known_positions",
        "_max_timestamp_ms",
        "_max_timestamp_offset",
        "_offset_entries_max",
        "_older_known_positions",
        "_pwrite",
        "_time_entries_max",
        "base_offset",
        "created_ms",
        "directory",
        "has_full_index",
        "offset_index",
        "path",
        "roll_jitter_ms",
        "rolling_timestamp_ms",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        files: Files,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        *,
        size_bytes: int,
        created_ms: int,
        roll_jitter_ms: int = 0,
        has_transaction_index: bool = False,
    ) -> None:
        self._files = files
        self._pwrite = files.pwrite
        self.directory = directory
        self.base_offset = base_offset
        self.path = segment_path(directory, base_offset, LOG_SUFFIX)
        self.size_bytes = size_bytes
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.rolling_timestamp_ms = -1  # the newest timestamp of the first append; -1: none
        self._file: OpenFile | None = None
        self._fd = -1
        self.offset_index = OffsetIndex(
            files, segment_path(directory, base_offset, OFFSET_INDEX_SUFFIX), base_offset
        )
        self.time_index = TimeIndex(
            files, segment_path(directory, base_offset, TIME_INDEX_SUFFIX), base_offset
        )
        self.transaction_index = TransactionIndex(
            files,
            segment_path(directory, base_offset, TRANSACTION_INDEX_SUFFIX),
            base_offset,
            exists=has_transaction_index,
        )
        self._bytes_since_index_entry = 0
        self._max_timestamp_ms = _UNKNOWN_TIMESTAMP if size_bytes else -1
        self._max_timestamp_offset = base_offset
        # Offset -> position of the batch that starts with it, for recent appends and reads: who
        # reads on where the last read or append ended needs no search. Two generations, so that
        # forgetting the older one does not forget the newest.
        self._known_positions: dict[int, int] = {}
        self._older_known_positions: dict[int, int] = {}
        self.has_full_index = False
        self._index_interval_bytes = 0
        self._offset_entries_max = 0
        self._time_entries_max = 0
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        self._index_interval_bytes = config.index_interval_bytes
        self._offset_entries_max = config.segment_index_bytes // OFFSET_ENTRY_BYTES
        # The last place is kept for the entry that closing the segment adds.
        self._time_entries_max = config.segment_index_bytes // TIME_ENTRY_BYTES - 1

    # The file

    def open(self) -> OpenFile:
        """The open .log file; it stays open while someone holds it, even after `release`."""
        file = self._file
        if file is None:
            file = self._file = OpenFile(self._files, self.path, os.O_RDWR | os.O_CREAT)
            self._fd = file.fd
        return file

    def create(self, preallocated_bytes: int) -> None:
        """Makes the files of a new segment, over what an earlier failure may have left there."""
        fd = self.open().fd
        self._files.ftruncate(fd, 0)
        self.offset_index.reset()
        self.time_index.reset()
        if preallocated_bytes:
            self._files.fallocate(fd, 0, preallocated_bytes)

    def release(self) -> None:
        """Lets go of the file and the mappings; the next use takes them again."""
        self._file = None
        self._fd = -1
        self.offset_index.release()
        self.time_index.release()

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def last_modified_ms(self) -> int:
        return int(self._files.stat(self.path).st_mtime * 1000)

    # Appending

    def append(
        self, batches: memoryview, size_bytes: int, last_offset: int, max_timestamp_ms: int
    ) -> None:
        """Writes one batch and indexes it: one system call.

        Raises OSError; the segment then is as it was before.
        """
        position = self.size_bytes
        if self._fd < 0:
            self.open()
        written = self._pwrite(self._fd, batches, position)
        if written != size_bytes:
            write_fully(self._files, self._fd, batches[written:], position + written)
        self._note(position, size_bytes, last_offset, max_timestamp_ms)

    def append_batches(self, batches: memoryview, ends: list[tuple[int, int, int]]) -> None:
        """Writes several batches, each given in `ends` by size, last offset and max timestamp.

        Raises OSError; the segment then is as it was before.
        """
        position = self.size_bytes
        write_fully(self._files, self.open().fd, batches, position)
        for size_bytes, last_offset, max_timestamp_ms in ends:
            self._note(position, size_bytes, last_offset, max_timestamp_ms)
            position += size_bytes

    def _note(
        self, position: int, size_bytes: int, last_offset: int, max_timestamp_ms: int
    ) -> None:
        if not position:
            self.rolling_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = max_timestamp_ms
            self._max_timestamp_offset = last_offset
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self._add_index_entry(last_offset, position)
        self._bytes_since_index_entry += size_bytes
        position += size_bytes
        self.size_bytes = position
        known = self._known_positions
        known[last_offset + 1] = position
        if len(known) >= _POSITIONS_KEPT:
            self._older_known_positions = known
            self._known_positions = {}

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(self._max_timestamp_ms, self._max_timestamp_offset)
        self._bytes_since_index_entry = 0
        self.has_full_index = (
            self.offset_index.count >= self._offset_entries_max
            or self.time_index.count >= self._time_entries_max
        )

    def cut_failed_write(self) -> None:
        """After a failed write: removes what reached the file, as far as the disk lets us.

        What stays lies behind `size_bytes`, where nobody reads and the next append writes.
        """
        try:
            self._files.ftruncate(self.open().fd, self.size_bytes)
        except OSError:
            pass

    def seal(self) -> None:
        """Writes the indexes out, complete with the last timestamp. Raises OSError."""
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self._max_timestamp_ms, self._max_timestamp_offset)
        self.write_out_indexes()

    def write_out_indexes(self) -> None:
        self.offset_index.write_out()
        self.time_index.write_out()
        self.transaction_index.write_out()

    def trim(self) -> None:
        """Cuts preallocated space off the .log file."""
        self._files.ftruncate(self.open().fd, self.size_bytes)

    def empty_indexes(self) -> None:
        """Gives back the room of offset and time index; a search reads the file without them."""
        self.offset_index.reset()
        self.time_index.reset()
        self.has_full_index = False

    # Timestamps

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp in the segment; -1 when no record has one."""
        if self._max_timestamp_ms == _UNKNOWN_TIMESTAMP:
            self._load_max_timestamp()
        return self._max_timestamp_ms

    def first_timestamp(self) -> int:
        """The newest timestamp of the first batch; -1 when it has none."""
        if self.rolling_timestamp_ms < 0 and self.size_bytes:
            self._load_rolling_timestamp()
        return self.rolling_timestamp_ms

    @property
    def newest_timestamp_ms(self) -> int:
        """What retention goes by: the newest record, or the file's age when none has a time."""
        timestamp_ms = self.max_timestamp
        return timestamp_ms if timestamp_ms >= 0 else self.last_modified_ms()

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
        """The first record from `start_offset` on whose timestamp is at least the given one."""
        entry = self.time_index.lookup(timestamp_ms)
        if not self._is_true_time_entry(*entry):
            self.rebuild_indexes()
            entry = self.time_index.lookup(timestamp_ms)
        start = self._search_start(max(entry[1], start_offset))
        for position, header in self.headers(start):
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            for record in self.read_records(position, header):
                if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                    epoch = header.partition_leader_epoch
                    return TimestampOffset(record.timestamp, record.offset, epoch)
        return None

    def _load_max_timestamp(self) -> None:
        """Takes the newest timestamp from the time index, unless the end of the file knows better.

        A time index that lost its end would make searches by time skip the segment.
        """
        last = self.time_index.last
        _, start = self.offset_index.entry(self.offset_index.count - 1)
        newest = max(
            (h.max_timestamp for _, h in self.headers(start) if h.record_count), default=-1
        )
        if newest > last[0] or not self._is_true_time_entry(*last):
            self.rebuild_indexes()
        else:
            self._max_timestamp_ms, self._max_timestamp_offset = last

    def _is_true_time_entry(self, timestamp_ms: int, offset: int) -> bool:
        if timestamp_ms < 0:
            return True
        _, header = self._find(offset)
        return header is not None and header.max_timestamp == timestamp_ms

    # Reading

    def read(
        self, offset: int, max_bytes: int, max_offset: int, end_offset: int, minimum_one_batch: bool
    ) -> LogSlice | None:
        """Whole batches from the one that holds `offset`; see `Log.read`.

        `end_offset` is where the next segment (or nothing) begins. None when no batch of this
        segment reaches `offset`.
        """
        start = self._known_positions.get(offset)
        if start is None:
            start = self._older_known_positions.get(offset)
            if start is None:
                start, _ = self._find(offset)
        if start >= self.size_bytes:
            return None
        if max_offset >= end_offset:
            limit = self.size_bytes
            next_offset = end_offset
        else:
            known = self._known_positions.get(max_offset)
            limit = self._find(max_offset)[0] if known is None else known
            next_offset = max_offset
        if limit <= start:
            return LogSlice(offset, offset, None)
        if limit - start > max_bytes:
            limit, next_offset = self._boundary(start, start + max_bytes, minimum_one_batch)
            if limit <= start:
                return LogSlice(offset, offset, None)
            self._remember(next_offset, limit)
        file = self._file or self.open()
        return LogSlice(offset, next_offset, FileSlice(file, start, limit - start))

    def headers_from(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from the one that holds `offset` on, by position and header."""
        return self.headers(self._find(offset)[0])

    def headers(
        self, position: int = 0, window_bytes: int = WINDOW_BYTES_MIN
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from `position` on, by their headers; ends at the first that is not whole."""
        return scan_headers(self._files, self.open().fd, position, self.size_bytes, window_bytes)

    def read_records(self, position: int, header: BatchHeader) -> list[Record]:
        batch = read_fully(self._files, self.open().fd, header.size_bytes, position)
        return decode_records(batch, header)

    def _find(self, offset: int) -> tuple[int, BatchHeader | None]:
        for position, header in self.headers(self._search_start(offset)):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, header
        return self.size_bytes, None

    def _search_start(self, offset: int) -> int:
        """A batch start from which a scan meets `offset`, by the index."""
        entry_offset, position = self.offset_index.lookup(offset)
        if position and not self._is_batch_start(position, entry_offset):
            self.rebuild_indexes()
            _, position = self.offset_index.lookup(offset)
        return position

    def _is_batch_start(self, position: int, entry_offset: int) -> bool:
        for _, header in self.headers(position, BATCH_OVERHEAD):
            return self.base_offset <= header.base_offset <= entry_offset
        return False

    def _boundary(self, start: int, limit: int, minimum_one_batch: bool) -> tuple[int, int]:
        """Where the last whole batch at or before `limit` ends, and the offset that follows it."""
        entry_offset, position = self.offset_index.lookup_position(limit)
        if position <= start or not self._is_batch_start(position, entry_offset):
            position = start
        next_offset = self.base_offset
        for at, header in self.headers(position):
            end = at + LOG_OVERHEAD + header.batch_length
            if end > limit:
                if at == start and minimum_one_batch:
                    return end, header.next_offset
                return at, header.base_offset
            position = end
            next_offset = header.next_offset
        return position, next_offset

    def _remember(self, offset: int, position: int) -> None:
        known = self._known_positions
        known[offset] = position
        if len(known) >= _POSITIONS_KEPT:
            self._older_known_positions = known
            self._known_positions = {}

    # Loading, truncation, deletion

    def load_tail(self) -> int:
        """Makes a cleanly closed segment writable: finds its end offset and newest timestamp.

        Trusts what the indexes cover and reads the batch headers after it. Bytes that are no
        whole batch are cut off `size_bytes`. Returns the offset after the last record.
        """
        entry_offset, position = self.offset_index.entry(self.offset_index.count - 1)
        last = self.time_index.last
        if (
            (position and not self._is_batch_start(position, entry_offset))
            or (position and self._lacks_time_index())
            or not self._is_true_time_entry(*last)
        ):
            return self.rebuild_indexes()
        self._max_timestamp_ms, self._max_timestamp_offset = last
        return self._scan(position)

    def recover(
        self, recovery_point: int, contiguous_from: int | None
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Validates everything from `recovery_point` on, CRC included, and indexes it anew.

        Yields the valid batches; when it is exhausted, the file ends behind the last of them.
        A gap in the offsets from `contiguous_from` on counts as damage.
        """
        start = 0
        if recovery_point > self.base_offset and self._has_sound_indexes():
            entry_offset, start = self.offset_index.lookup(recovery_point - 1)
            if not self._is_batch_start(start, entry_offset):
                start = 0
        self.forget_positions()
        # The entry at `start` stays: the scan begins with the batch it names.
        self.offset_index.truncate_to_position(start + 1 if start else 0)
        indexed_offset, _ = self.offset_index.entry(self.offset_index.count - 1)
        self.time_index.truncate_to(indexed_offset + 1 if start else self.base_offset)
        self._max_timestamp_ms, self._max_timestamp_offset = self.time_index.last
        self._bytes_since_index_entry = 0
        end = start
        next_offset = self.base_offset
        fd = self.open().fd
        for at, header, batch in scan_valid_batches(self._files, fd, start, self.size_bytes):
            if not 0 <= header.last_offset - self.base_offset <= RELATIVE_OFFSET_MAX:
                break
            # The offset is outside of the CRC.
            may_have_gap = (
                contiguous_from is None
                or header.base_offset < contiguous_from
                or (at == start and start > 0)
            )
            if not may_have_gap and header.base_offset != next_offset:
                break
            self._index_scanned(at, header)
            end = at + header.size_bytes
            next_offset = header.next_offset
            yield header, batch
        self._files.ftruncate(fd, end)
        self.size_bytes = end
        self._load_rolling_timestamp()

    def _has_sound_indexes(self) -> bool:
        return (
            self.offset_index.is_ascending()
            and self.time_index.is_ascending()
            and not self._lacks_time_index()
        )

    def _lacks_time_index(self) -> bool:
        """Whether there is no time entry although the records have timestamps."""
        self._load_rolling_timestamp()
        return self.rolling_timestamp_ms >= 0 > self.time_index.last[0]

    def rebuild_indexes(self) -> int:
        """Makes the offset and time index anew from the batch headers; returns the end offset."""
        self.offset_index.reset()
        self.time_index.reset()
        self.forget_positions()
        self._max_timestamp_ms, self._max_timestamp_offset = -1, self.base_offset
        end_offset = self._scan(0)
        self.seal()
        return end_offset

    def _scan(self, position: int) -> int:
        """Reads the headers from a batch start on and indexes what has no entry yet."""
        next_offset = self.base_offset
        end = position
        self._bytes_since_index_entry = 0
        for at, header in self.headers(position):
            next_offset = header.next_offset
            self._index_scanned(at, header)
            end = at + header.size_bytes
        self.size_bytes = end
        self._load_rolling_timestamp()
        return next_offset

    def _index_scanned(self, at: int, header: BatchHeader) -> None:
        # Batches that compaction emptied keep a timestamp that no record has.
        if header.max_timestamp > self._max_timestamp_ms and header.record_count:
            self._max_timestamp_ms = header.max_timestamp
            self._max_timestamp_offset = header.last_offset
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self._add_index_entry(header.last_offset, at)
        self._bytes_since_index_entry += header.size_bytes

    def _load_rolling_timestamp(self) -> None:
        self.rolling_timestamp_ms = -1
        for _, header in self.headers(0, BATCH_OVERHEAD):
            self.rolling_timestamp_ms = header.max_timestamp
            return

    def truncation_point(self, offset: int) -> int:
        """The end offset that `truncate_to` leaves: below `offset` when that is inside a batch."""
        _, header = self._find(offset)
        return offset if header is None else min(offset, header.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drops the batch that holds `offset` and all after it. Raises OSError."""
        position, header = self._find(offset)
        if header is None:
            return
        fd = self.open().fd
        self._files.ftruncate(fd, position)
        self.size_bytes = position
        self.forget_positions()
        self.offset_index.truncate_to_position(position)
        self.time_index.truncate_to(min(offset, header.base_offset))
        self.transaction_index.truncate_to(min(offset, header.base_offset))
        self.has_full_index = False
        self._max_timestamp_ms, self._max_timestamp_offset = self.time_index.last
        _, indexed_position = self.offset_index.entry(self.offset_index.count - 1)
        self._scan(indexed_position)

    def forget_positions(self) -> None:
        self._known_positions = {}
        self._older_known_positions = {}

    def mark_deleted(self) -> list[Path]:
        """Renames the files to .deleted and returns their new paths; open readers go on.

        The directory of a full disk may have no room for another name: there the files go at once.
        """
        renamed = []
        for path in self.paths():
            target = path.with_name(path.name + DELETED_SUFFIX)
            try:
                self._files.rename(path, target)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                self._files.unlink(path)
                continue
            renamed.append(target)
        self.release()
        return renamed

    def make_way(self) -> list[Path]:
        """The same before another segment's files are renamed to the names of this one's.

        What has no other name by then goes with that, which is cheap for all but a large .log.
        """
        target = self.path.with_name(self.path.name + DELETED_SUFFIX)
        try:
            self._files.rename(self.path, target)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            return []
        finally:
            self.release()
        return [target]

    def paths(self) -> list[Path]:
        return [self.path, *self.index_paths()]

    def index_paths(self) -> list[Path]:
        """Where the indexes are (the transaction index only if there is one)."""
        return [self.offset_index.path, self.time_index.path, self.transaction_index.path]
