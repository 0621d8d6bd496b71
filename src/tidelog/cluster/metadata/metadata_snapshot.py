"""Snapshots of the metadata: files that replace the log up to an offset.

`<offset, 20 digits>-<epoch, 10 digits>.checkpoint` holds everything below that offset, as record
batches in Kafka's layout: control records (a header, the version and voters of the quorum), the
records of the image, and a control record as footer, without which the file is not whole. A file
that is being written has `.part` at the end of its name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.cluster.metadata.records.framing import decode_record, encode_record
from tidelog.protocol.control_records import (
    KRaftVersionRecord,
    MetadataLogControl,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VotersRecord,
    decode_control,
    encode_control,
)
from tidelog.protocol.errors import ApiError, ProtocolError
from tidelog.protocol.records import Record, decode_batches, encode_batch
from tidelog.protocol.schema import Message
from tidelog.raft.raft_log import SnapshotId
from tidelog.storage.files import CorruptFileError, read_file, write_file
from tidelog.world.files import Files

logger = logging.getLogger(__name__)

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

RECORDS_PER_BATCH = 1000
# About a millisecond of encoding.
_RECORDS_BEFORE_GIVING_WAY = 100


def snapshot_file_name(snapshot_id: SnapshotId) -> str:
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


def part_file_name(snapshot_id: SnapshotId) -> str:
    """Of one that is being written or received."""
    return f"{snapshot_file_name(snapshot_id)}.part"


def _parse_file_name(file_name: str) -> SnapshotId | None:
    match = _NAME.fullmatch(file_name)
    return SnapshotId(int(match[1]), int(match[2])) if match else None


@dataclass(slots=True)
class Snapshot:
    """A snapshot's content."""

    records: list[Message] = field(default_factory=list)
    timestamp_ms: int = 0  # of the last record of the log that it holds
    kraft_version: int = 0
    voters: list[Voter] = field(default_factory=list)


def list_snapshots(files: Files, directory: Path) -> list[SnapshotId]:
    """The snapshots in a directory, the newest first."""
    found = (_parse_file_name(name) for name in files.listdir(directory))
    return sorted((each for each in found if each is not None), reverse=True)


def write_snapshot(
    files: Files,
    directory: Path,
    snapshot_id: SnapshotId,
    records: Iterable[Message],
    *,
    metadata_version: int,
    timestamp_ms: int,
    now_ms: int,
    kraft_version: int,
    voters: list[Voter],
    give_way: Callable[[], None],
) -> None:
    """Writes and syncs a snapshot; afterwards it is there as a whole. Raises OSError.

    Calls `give_way` now and then, for encoding many records takes the interpreter for long.
    """
    control: list[MetadataLogControl] = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=timestamp_ms)
    ]
    if kraft_version:
        control.append(KRaftVersionRecord(version=0, kraft_version=kraft_version))
        control.append(VotersRecord(version=0, voters=voters))
    data = bytearray()
    offset = 0
    for message in control:
        data += _control_batch(message, offset, snapshot_id.epoch, now_ms)
        offset += 1
    encoded = (encode_record(record, metadata_version) for record in records)
    for values in _chunks(_with_pauses(encoded, give_way)):
        batch = [Record(offset + index, now_ms, None, value) for index, value in enumerate(values)]
        data += encode_batch(batch, base_offset=offset, partition_leader_epoch=snapshot_id.epoch)
        offset += len(values)
    data += _control_batch(SnapshotFooterRecord(version=0), offset, snapshot_id.epoch, now_ms)
    part = directory / part_file_name(snapshot_id)
    write_file(files, part, data, durable=True)
    files.rename(part, directory / snapshot_file_name(snapshot_id))
    files.sync_directory(directory)


def _control_batch(message: MetadataLogControl, offset: int, epoch: int, now_ms: int) -> bytearray:
    return encode_control(
        message, timestamp_ms=now_ms, base_offset=offset, partition_leader_epoch=epoch
    )


def _with_pauses(values: Iterator[bytes], give_way: Callable[[], None]) -> Iterator[bytes]:
    for count, value in enumerate(values, 1):
        yield value
        if count % _RECORDS_BEFORE_GIVING_WAY == 0:
            give_way()


def _chunks(values: Iterator[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    for value in values:
        chunk.append(value)
        if len(chunk) == RECORDS_PER_BATCH:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def read_snapshot(files: Files, directory: Path, snapshot_id: SnapshotId) -> Snapshot:
    """Reads a snapshot. Raises CorruptFileError, which names the file, when it is not whole."""
    path = directory / snapshot_file_name(snapshot_id)
    snapshot = Snapshot()
    has_header = has_footer = False
    data = read_file(files, path)
    read_bytes = 0
    try:
        for header, records in decode_batches(data):
            read_bytes += header.size_bytes
            if has_footer:
                raise CorruptFileError(path, "it goes on after its footer")
            if not header.is_control:
                snapshot.records += [decode_record(record.value or b"") for record in records]
                continue
            for record in records:
                control = decode_control(record)
                if isinstance(control, SnapshotHeaderRecord):
                    has_header = True
                    snapshot.timestamp_ms = control.last_contained_log_timestamp
                elif isinstance(control, KRaftVersionRecord):
                    snapshot.kraft_version = control.kraft_version
                elif isinstance(control, VotersRecord):
                    snapshot.voters = control.voters
                elif isinstance(control, SnapshotFooterRecord):
                    has_footer = True
    except (ApiError, ProtocolError) as error:
        raise CorruptFileError(path, str(error)) from error
    if not has_header or not has_footer or read_bytes != len(data):
        raise CorruptFileError(path, "it has no footer: it was not written to its end")
    return snapshot


def newest_snapshot(files: Files, directory: Path) -> tuple[SnapshotId, Snapshot, list[str]]:
    """The newest snapshot that is whole (else an empty one), and what is wrong with newer ones."""
    damaged: list[str] = []
    for name in files.listdir(directory):
        if name.endswith(PART_SUFFIX):
            files.unlink(directory / name)
    for snapshot_id in list_snapshots(files, directory):
        try:
            return snapshot_id, read_snapshot(files, directory, snapshot_id), damaged
        except CorruptFileError as error:
            logger.warning("%s; trying the snapshot before it", error)
            damaged.append(str(error))
    return SnapshotId(0, 0), Snapshot(), damaged
