"""What the files of a data directory hold, row by row, for people and programs to read.

A row is a dict whose values JSON can hold. Files are only read. A place that cannot be read gives a
row with `error`, and the rows before it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from tidelog.errors import TidelogError
from tidelog.protocol.errors import ApiError, ProtocolError
from tidelog.protocol.record_batch import BatchHeader, compute_crc, read_header
from tidelog.protocol.records import Record, decode_records
from tidelog.protocol.uuids import format_uuid
from tidelog.storage.files import CorruptFileError, read_file
from tidelog.storage.journal.format import FrameKind
from tidelog.storage.journal.reader import map_journal_file, scan_journal_files
from tidelog.storage.producer_state.snapshot import read_snapshot
from tidelog.storage.segment.transaction_index import TransactionIndex
from tidelog.world.files import Files
from tidelog.world.operating_system.files import OsFiles

Row = dict[str, object]

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TEXT_FILES = frozenset(
    {
        "leader-epoch-checkpoint",
        "partition.metadata",
        "meta.properties",
        "journal-checkpoint",
        ".kafka_cleanshutdown",
    }
)
_real_files = OsFiles()


class UnknownFileError(TidelogError):
    """A file is none that the store writes."""


def dump_file(path: Path, *, files: Files = _real_files, records: bool = False) -> Iterator[Row]:
    """The rows of one file, chosen by its name; `records` adds the records of each batch.

    Raises UnknownFileError, OSError.
    """
    if path.name in _TEXT_FILES or path.name.endswith("-offset-checkpoint"):
        return dump_text(path, files)
    if path.suffix == ".log":
        return dump_segment(path, files, records=records)
    dump = _DUMPS.get(path.suffix)
    if dump is None:
        raise UnknownFileError(
            f"{path}: the name says none of {', '.join(sorted([*_DUMPS, '.log']))} or a checkpoint"
        )
    return dump(path, files)


def dump_segment(path: Path, files: Files = _real_files, *, records: bool = False) -> Iterator[Row]:
    """The batches of a segment: position, offsets, times, producer, size, whether the CRC fits."""
    for position, header, batch in read_batches(path, files):
        if header is None:
            yield {"position": position, "error": "no batch can be read here"}
            return
        crc_is_valid = compute_crc(batch, 0, len(batch)) == header.crc
        row = _describe_batch(position, header, crc_is_valid)
        if records and crc_is_valid:
            try:
                row["records"] = [_describe_record(r) for r in decode_records(batch, header)]
            except (ApiError, ProtocolError) as error:
                row["error"] = str(error)
        yield row


def read_batches(
    path: Path, files: Files = _real_files
) -> Iterator[tuple[int, BatchHeader | None, memoryview]]:
    """Position, header and bytes of each batch; a None header where no batch can be read."""
    fd = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size_bytes = files.fstat(fd).st_size
        view = memoryview(files.map(fd, size_bytes) if size_bytes else b"")
    finally:
        files.close(fd)
    position = 0
    while position < size_bytes:
        try:
            header = read_header(view, position)
        except (ApiError, ProtocolError):
            header = None
        if header is None or position + header.size_bytes > size_bytes:
            yield position, None, view[position:]
            return
        yield position, header, view[position : position + header.size_bytes]
        position += header.size_bytes


def dump_offset_index(path: Path, files: Files = _real_files) -> Iterator[Row]:
    base_offset = _base_offset(path)
    for relative_offset, position in _entries(path, files, _OFFSET_ENTRY):
        yield {"offset": base_offset + relative_offset, "position": position}


def dump_time_index(path: Path, files: Files = _real_files) -> Iterator[Row]:
    base_offset = _base_offset(path)
    for timestamp_ms, relative_offset in _entries(path, files, _TIME_ENTRY):
        yield {"timestamp_ms": timestamp_ms, "offset": base_offset + relative_offset}


def dump_transaction_index(path: Path, files: Files = _real_files) -> Iterator[Row]:
    index = TransactionIndex(files, path, _base_offset(path), exists=True)
    try:
        entries = index.entries
    except CorruptFileError as error:
        yield {"error": str(error)}
        return
    for entry in entries:
        yield dict(entry._asdict())


def dump_snapshot(path: Path, files: Files = _real_files) -> Iterator[Row]:
    try:
        producers = read_snapshot(files, path)
    except CorruptFileError as error:
        yield {"error": str(error)}
        return
    for producer in producers:
        last = producer.batches[-1] if producer.batches else None
        yield {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "last_timestamp_ms": producer.last_timestamp_ms,
            "transaction_first_offset": producer.transaction_first_offset,
            "last_sequence": None if last is None else last.last_sequence,
            "last_offset": None if last is None else last.last_offset,
        }


def dump_journal(path: Path, files: Files = _real_files) -> Iterator[Row]:
    """The header and the frames of one journal file, with the places between that hold none."""
    mapped = map_journal_file(files, path)
    yield {
        "sequence": mapped.header.sequence,
        "base_lsn": mapped.header.base_lsn,
        "size_bytes": mapped.header.size_bytes,
    }
    frames, holes = scan_journal_files([mapped])
    holes_by_next = {hole.next_lsn: hole for hole in holes}
    for frame in frames:
        if hole := holes_by_next.get(frame.lsn):
            yield {"position": hole.position, "lsn": hole.lsn, "error": "no frame stands here"}
        row: Row = {
            "position": frame.lsn - mapped.header.base_lsn,
            "lsn": frame.lsn,
            "group_lsn": frame.group_lsn,
            "kind": frame.kind.name.lower(),
        }
        if frame.kind in (FrameKind.CHECKPOINT, FrameKind.FILE_OPENED):
            row["refers_to_lsn"] = frame.offset
        else:
            row["topic"], row["partition"] = frame.topic_partition
            row["topic_id"] = format_uuid(frame.topic_id)
            row["offset"] = frame.offset
        if frame.kind is FrameKind.BATCHES:
            row["next_offset"] = frame.next_offset
            row["leader_epoch"] = frame.leader_epoch
            row["size_bytes"] = len(frame.batches)
        yield row


def dump_text(path: Path, files: Files = _real_files) -> Iterator[Row]:
    """The lines of a checkpoint or properties file."""
    for number, line in enumerate(read_file(files, path).decode("utf-8", "replace").splitlines()):
        yield {"line": number + 1, "text": line}


_DUMPS: dict[str, Callable[[Path, Files], Iterator[Row]]] = {
    ".index": dump_offset_index,
    ".timeindex": dump_time_index,
    ".txnindex": dump_transaction_index,
    ".snapshot": dump_snapshot,
    ".journal": dump_journal,
}


def _base_offset(path: Path) -> int:
    digits = path.name.partition(".")[0]
    if not digits.isdecimal():
        raise UnknownFileError(f"{path}: the name must begin with the offset of the segment")
    return int(digits)


def _entries(path: Path, files: Files, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    content = read_file(files, path)
    yield from entry.iter_unpack(content[: len(content) // entry.size * entry.size])


def _describe_batch(position: int, header: BatchHeader, crc_is_valid: bool) -> Row:
    try:
        compression = header.compression.name.lower()
    except ApiError:
        compression = "unknown"
    return {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "size_bytes": header.size_bytes,
        "leader_epoch": header.partition_leader_epoch,
        "base_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "timestamp_type": header.timestamp_type.name.lower(),
        "compression": compression,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": f"{header.crc:08x}",
        "crc_is_valid": crc_is_valid,
    }


def _describe_record(record: Record) -> Row:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(data: bytes | memoryview | None) -> str | None:
    return None if data is None else bytes(data).decode("utf-8", "backslashreplace")
