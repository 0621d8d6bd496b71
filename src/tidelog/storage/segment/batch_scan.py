"""Walking over the batches of a .log file, by headers alone or with every byte checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tidelog.protocol.record_batch import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    compute_crc,
)
from tidelog.world.files import Files

_HEADER = struct.Struct(">qiibIhiqqqhii")
WINDOW_BYTES_MIN = 4096
_WINDOW_BYTES_MAX = 1 << 20


def scan_headers(
    files: Files, fd: int, position: int, end: int, window_bytes: int = WINDOW_BYTES_MIN
) -> Iterator[tuple[int, BatchHeader]]:
    """The batches between a batch start and `end`, until the first that is not whole.

    Reads ahead more where batches are small and hardly more than headers where they are large.
    """
    window = b""
    window_start = 0
    found = 0
    while position + BATCH_OVERHEAD <= end:
        at = position - window_start
        if at + BATCH_OVERHEAD > len(window):
            if found > 2:
                window_bytes = min(window_bytes * 2, _WINDOW_BYTES_MAX)
            elif window_bytes > WINDOW_BYTES_MIN:
                window_bytes = WINDOW_BYTES_MIN
            window = files.pread(fd, min(window_bytes, end - position), position)
            window_start = position
            at = found = 0
            if len(window) < BATCH_OVERHEAD:
                return
        header = BatchHeader._make(_HEADER.unpack_from(window, at))
        batch_end = position + LOG_OVERHEAD + header.batch_length
        if not _is_plausible(header) or batch_end > end:
            return
        found += 1
        yield position, header
        position = batch_end


def scan_valid_batches(
    files: Files, fd: int, position: int, end: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Like `scan_headers` with the bytes of each batch, until the first that is damaged.

    A batch is damaged when its CRC is wrong or when its offsets do not rise.
    """
    next_offset = 0
    window = memoryview(b"")
    window_start = position
    needed_bytes = BATCH_OVERHEAD
    while position + needed_bytes <= end:
        at = position - window_start
        if at + needed_bytes > len(window):
            wanted_bytes = min(max(needed_bytes, _WINDOW_BYTES_MAX), end - position)
            window = memoryview(read_fully(files, fd, wanted_bytes, position))
            window_start = position
            at = 0
            if len(window) < needed_bytes:
                return
        header = BatchHeader._make(_HEADER.unpack_from(window, at))
        if not _is_plausible(header) or header.base_offset < next_offset:
            return
        if needed_bytes < header.size_bytes:
            needed_bytes = header.size_bytes
            continue
        batch = window[at : at + header.size_bytes]
        if compute_crc(batch, 0, len(batch)) != header.crc:
            return
        yield position, header, batch
        next_offset = header.next_offset
        position += len(batch)
        needed_bytes = BATCH_OVERHEAD


def read_fully(files: Files, fd: int, size_bytes: int, position: int) -> bytes:
    """The bytes at `position`: all that were asked for, or what there is before the file's end."""
    data = files.pread(fd, size_bytes, position)
    while len(data) < size_bytes:
        more = files.pread(fd, size_bytes - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def _is_plausible(header: BatchHeader) -> bool:
    return (
        header.magic == MAGIC
        and header.batch_length >= BATCH_OVERHEAD - LOG_OVERHEAD
        and header.last_offset_delta >= 0
    )
