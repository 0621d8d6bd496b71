"""One pass of compaction over a log: the latest value of each key stays.

The pass has two walks. The first reads the dirty part, from where the last pass ended, and maps
each key to its latest offset, until the part ends or the map is full. The second reads the log
from its start up to there and copies what stays into new segments, merging neighbours that have
become small. Offsets never change.

This module reads segment files by path and writes `.cleaned` files; it knows no log and no lock, so
that it can run in a process of its own. The log swaps the finished files in.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

from tidelog.errors import TidelogError
from tidelog.protocol.record_batch import BATCH_OVERHEAD, BatchHeader, check_crc, read_header
from tidelog.storage.compaction.batch_filter import (
    BatchFilter,
    LastRecord,
    batch_records,
    control_type,
    walk_records,
)
from tidelog.storage.compaction.cleaned_segment import CleanedSegment
from tidelog.storage.compaction.cleaned_transactions import CleanedTransactions
from tidelog.storage.compaction.key_offsets import KeyOffsets
from tidelog.storage.files import NO_SPACE, CorruptFileError
from tidelog.storage.segment.transaction_index import AbortedTransaction
from tidelog.world.files import Files
from tidelog.world.workers import NO_RATE_LIMIT

_READ_BYTES = 1 << 20
_RELATIVE_OFFSET_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A closed segment as it was when the pass began."""

    path: str
    base_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Everything a pass needs to know, as plain values."""

    directory: str
    segments: tuple[SourceSegment, ...]
    """All closed segments from the log's start to `first_uncleanable_offset`."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()
    last_records: dict[int, LastRecord] = field(default_factory=dict)
    now_ms: int = 0
    delete_retention_ms: int = 24 * 3600 * 1000
    segment_bytes: int = 1 << 30
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 << 20
    dedupe_buffer_bytes: int = 128 << 20
    bytes_per_second_max: float = NO_RATE_LIMIT


class CompactedGroup(msgspec.Struct, frozen=True, tag=True):
    """Neighbouring segments and the one that takes their place.

    When not `changed`, nothing was written, because the one old segment is clean already."""

    base_offset: int
    old_base_offsets: tuple[int, ...]
    changed: bool
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int


class CompactionEnd(msgspec.Struct, frozen=True, tag=True):
    """The pass is over; what is left dirty begins at `next_dirty_offset`."""

    next_dirty_offset: int


class CompactionFailure(msgspec.Struct, frozen=True, tag=True):
    """The pass ended early. `is_corrupt`: it would fail the same way again; `lacks_room`: the disk
    was full, and what the pass was writing is removed."""

    problem: str
    is_corrupt: bool
    lacks_room: bool = False


CompactionEvent: TypeAlias = CompactedGroup | CompactionEnd | CompactionFailure


def compact(
    task: CompactionTask, files: Files, on_bytes: Callable[[int], None]
) -> Iterator[CompactedGroup | CompactionEnd]:
    """Carries a pass out, handing over each group as it is finished, in offset order.

    A group must be swapped in before later ones are (or not at all): a tombstone goes only after
    what it deletes. `on_bytes` is called with the bytes read or written since the last call, and
    may wait, to throttle, or raise, to end the pass.

    Raises CorruptFileError when a segment does not hold whole batches, FileNotFoundError when one
    was deleted meanwhile.
    """
    keys = build_key_offsets(task, files, on_bytes)
    batches = BatchFilter(
        keys,
        CleanedTransactions(task.aborted),
        task.last_records,
        now_ms=task.now_ms,
        delete_retention_ms=task.delete_retention_ms,
    )
    end_offset = keys.latest_offset + 1
    segments = [segment for segment in task.segments if segment.base_offset < end_offset]
    for group in group_segments(segments, task.segment_bytes, task.first_uncleanable_offset):
        yield _compact_group(task, group, batches, files, on_bytes)
    yield CompactionEnd(end_offset)


def build_key_offsets(
    task: CompactionTask, files: Files, on_bytes: Callable[[int], None]
) -> KeyOffsets:
    """Maps the keys of the dirty part; its `latest_offset` says how far the map reaches."""
    start_offset = task.first_dirty_offset
    keys = KeyOffsets(task.dedupe_buffer_bytes)
    keys.latest_offset = start_offset - 1
    transactions = CleanedTransactions(
        entry for entry in task.aborted if entry.last_offset >= start_offset
    )
    segments = task.segments
    for index, segment in enumerate(segments):
        is_last = index + 1 == len(segments)
        next_base = task.first_uncleanable_offset if is_last else segments[index + 1].base_offset
        if next_base <= start_offset:
            continue
        with _naming(segment):
            for header, batch in read_batches(segment, files, on_bytes):
                if header.is_control:
                    transactions.on_marker(header, control_type(batch, header))
                elif not transactions.on_data_batch(header) and header.last_offset >= start_offset:
                    full_at = _map_batch(keys, header, batch, start_offset)
                    if full_at is not None:
                        keys.latest_offset = full_at - 1
                        return keys
                keys.latest_offset = max(keys.latest_offset, header.last_offset)
        # Offsets that compaction left empty at the end of the segment count as seen.
        keys.latest_offset = max(keys.latest_offset, next_base - 1)
    return keys


def group_segments(
    segments: Sequence[SourceSegment], size_bytes_max: int, first_uncleanable_offset: int
) -> list[list[SourceSegment]]:
    """Neighbours that together fit one segment, in size and in the range of relative offsets."""
    groups: list[list[SourceSegment]] = []
    group_bytes = 0
    for index, segment in enumerate(segments):
        is_last = index + 1 == len(segments)
        next_base = first_uncleanable_offset if is_last else segments[index + 1].base_offset
        if (
            groups
            and group_bytes + segment.size_bytes <= size_bytes_max
            and next_base - 1 - groups[-1][0].base_offset <= _RELATIVE_OFFSET_MAX
        ):
            groups[-1].append(segment)
            group_bytes += segment.size_bytes
        else:
            groups.append([segment])
            group_bytes = segment.size_bytes
    return groups


def read_batches(
    segment: SourceSegment, files: Files, on_bytes: Callable[[int], None]
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a segment file in order; reads a megabyte (or one batch) at a time."""
    fd = files.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position = 0
        next_offset = segment.base_offset
        offset_max = segment.base_offset + _RELATIVE_OFFSET_MAX
        want = _READ_BYTES
        while position < segment.size_bytes:
            chunk = memoryview(files.pread(fd, min(want, segment.size_bytes - position), position))
            at = 0
            want = _READ_BYTES
            while len(chunk) - at >= BATCH_OVERHEAD:
                header = read_header(chunk, at)
                if header.size_bytes > len(chunk) - at:
                    want = max(want, header.size_bytes)
                    break
                check_crc(chunk, at, header.size_bytes)
                # The checksum does not cover the base offset.
                if not next_offset <= header.base_offset <= header.last_offset <= offset_max:
                    raise CorruptFileError(
                        segment.path, f"offset {header.base_offset} follows {next_offset - 1}"
                    )
                next_offset = header.next_offset
                yield header, chunk[at : at + header.size_bytes]
                at += header.size_bytes
            if at == 0 and len(chunk) >= min(want, segment.size_bytes - position):
                raise CorruptFileError(segment.path, f"half a batch at byte {position}")
            if not chunk:
                raise CorruptFileError(segment.path, f"ends at byte {position}")
            position += at
            on_bytes(at)
    finally:
        files.close(fd)


def _map_batch(
    keys: KeyOffsets, header: BatchHeader, batch: memoryview, start_offset: int
) -> int | None:
    """Adds the keys of a batch; the offset of the first record that no longer fits, else None."""
    base_offset = header.base_offset
    data = batch_records(batch, header)
    for _, _, delta, key, _ in walk_records(data, header.record_count):
        offset = base_offset + delta
        if key is not None and offset >= start_offset and not keys.put(key, offset):
            return offset
    return None


def _compact_group(
    task: CompactionTask,
    group: list[SourceSegment],
    batches: BatchFilter,
    files: Files,
    on_bytes: Callable[[int], None],
) -> CompactedGroup:
    directory = Path(task.directory)
    records_read, records_retained = batches.records_read, batches.records_retained
    cleaned = CleanedSegment(
        files,
        directory,
        group[0].base_offset,
        index_interval_bytes=task.index_interval_bytes,
        index_bytes_max=task.index_bytes_max,
    )
    changed = len(group) > 1
    last_written = max((i for i, segment in enumerate(group) if segment.size_bytes), default=0)
    try:
        for index, segment in enumerate(group):
            # The last batch of a group stays, if only as an empty one: the new segment then
            # reaches as far as the old ones did, so that recovery knows which it replaces.
            keep_at = segment.size_bytes if index == last_written else -1
            with _naming(segment):
                changed |= _copy(segment, cleaned, batches, keep_at, files, on_bytes)
        cleaned.add_aborted(batches.retained_aborts)
        batches.retained_aborts = []
        if changed:
            on_bytes(cleaned.size_bytes)
            cleaned.finish()
        else:
            cleaned.discard()
    except BaseException:
        cleaned.discard()
        raise
    return CompactedGroup(
        base_offset=group[0].base_offset,
        old_base_offsets=tuple(segment.base_offset for segment in group),
        changed=changed,
        bytes_before=sum(segment.size_bytes for segment in group),
        bytes_after=cleaned.size_bytes,
        records_before=batches.records_read - records_read,
        records_after=batches.records_retained - records_retained,
    )


def _copy(
    segment: SourceSegment,
    cleaned: CleanedSegment,
    batches: BatchFilter,
    keep_at: int,
    files: Files,
    on_bytes: Callable[[int], None],
) -> bool:
    """Copies what stays of a segment; the batch that ends at byte `keep_at` stays in any case.
    Returns whether anything went or changed."""
    changed = False
    position = 0
    for header, batch in read_batches(segment, files, on_bytes):
        position += len(batch)
        kept = batches.retain(batch, header, keep_offsets=position == keep_at)
        if kept is None:
            changed = True
        elif kept is batch:
            cleaned.append(batch, header)
        else:
            changed = changed or kept != batch
            cleaned.append(kept, read_header(kept, 0))
    return changed


@contextmanager
def _naming(segment: SourceSegment) -> Iterator[None]:
    """Turns what malformed records raise into an error that names the file."""
    try:
        yield
    except CorruptFileError:
        raise
    except (IndexError, ValueError, struct.error, TidelogError) as error:
        raise CorruptFileError(segment.path, f"malformed records: {error}") from error


def run_task(
    task: CompactionTask, files: Files, on_bytes: Callable[[int], None]
) -> Iterator[CompactionEvent]:
    """The events of a pass, with what can go wrong in it as the last one."""
    try:
        yield from compact(task, files, on_bytes)
    except CorruptFileError as error:
        yield CompactionFailure(str(error), is_corrupt=True)
    except OSError as error:
        yield CompactionFailure(str(error), is_corrupt=False, lacks_room=error.errno in NO_SPACE)


def failed_pass(problem: str, is_bug: bool) -> CompactionEvent:
    """The end of a pass whose process came to an end; after a bug trying again would not help."""
    return CompactionFailure(problem, is_corrupt=is_bug)
