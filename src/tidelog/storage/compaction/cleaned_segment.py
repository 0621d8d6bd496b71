"""The segment that compaction writes: the files of a segment, with `.cleaned` at the end.

Until they are renamed nobody reads them, and recovery deletes them.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.protocol.record_batch import BatchHeader
from tidelog.storage.compaction.segment_swap import undo_swap
from tidelog.storage.files import write_fully
from tidelog.storage.segment.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)
from tidelog.storage.segment.offset_index import ENTRY_SIZE_BYTES, OffsetIndex
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.segment.transaction_index import AbortedTransaction, TransactionIndex
from tidelog.world.files import Files

_BUFFER_BYTES = 1 << 20


def cleaned_path(directory: Path, base_offset: int, suffix: str) -> Path:
    return segment_path(directory, base_offset, suffix + CLEANED_SUFFIX)


class CleanedSegment:
    """Collects batches and writes them with their indexes; memory stays near one buffer."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        base_offset: int,
        *,
        index_interval_bytes: int,
        index_bytes_max: int,
    ) -> None:
        undo_swap(files, directory, base_offset)
        self._files = files
        self._directory = directory
        self.base_offset = base_offset
        self.size_bytes = 0
        self._index_interval_bytes = index_interval_bytes
        self._index_entries_max = index_bytes_max // ENTRY_SIZE_BYTES
        self._offset_index = OffsetIndex(files, self._path(OFFSET_INDEX_SUFFIX), base_offset)
        self._time_index = TimeIndex(files, self._path(TIME_INDEX_SUFFIX), base_offset)
        self._transaction_index = TransactionIndex(
            files, self._path(TRANSACTION_INDEX_SUFFIX), base_offset, exists=False
        )
        self._unindexed_bytes = 0
        self._max_timestamp = -1
        self._max_timestamp_offset = base_offset
        self._buffer = bytearray()
        self._written_bytes = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = files.open(self._path(LOG_SUFFIX), flags)

    def append(self, batch: bytes | memoryview, header: BatchHeader) -> None:
        """Adds a batch, whose header is handed in to spare reading it again."""
        if header.record_count and header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._max_timestamp_offset = header.last_offset
        if self._unindexed_bytes > self._index_interval_bytes:
            self._index(header.last_offset)
        self._buffer += batch
        self.size_bytes += len(batch)
        self._unindexed_bytes += len(batch)
        if len(self._buffer) >= _BUFFER_BYTES:
            self._write_out()

    def add_aborted(self, entries: list[AbortedTransaction]) -> None:
        for entry in entries:
            self._transaction_index.append(entry)

    def finish(self) -> None:
        """Makes all files of the segment durable under their `.cleaned` names."""
        self._write_out()
        self._files.fsync(self._fd)
        self._close()
        self._time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
        self._offset_index.write_out()
        self._time_index.write_out()
        self._transaction_index.write_out()
        # All four files, even if one is empty: recovery tells by their names how far a swap came.
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            self._sync(self._path(suffix))
        self._files.sync_directory(self._directory)

    def discard(self) -> None:
        """Removes whatever there is of the segment."""
        self._close()
        undo_swap(self._files, self._directory, self.base_offset)

    def _path(self, suffix: str) -> Path:
        return cleaned_path(self._directory, self.base_offset, suffix)

    def _index(self, last_offset: int) -> None:
        self._unindexed_bytes = 0
        # A sparser index is still an index: the search scans further.
        if self._offset_index.count < self._index_entries_max:
            self._offset_index.append(last_offset, self.size_bytes)
            self._time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)

    def _write_out(self) -> None:
        write_fully(self._files, self._fd, self._buffer, self._written_bytes)
        self._written_bytes += len(self._buffer)
        self._buffer = bytearray()

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._files.close(fd)

    def _sync(self, path: Path) -> None:
        fd = self._files.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            self._files.fsync(fd)
        finally:
            self._files.close(fd)
