"""Reading the metadata log back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidelog.cluster.metadata.image_changes import MetadataReplayError
from tidelog.cluster.metadata.metadata_transactions import MetadataTransactions
from tidelog.cluster.metadata.records.framing import decode_record
from tidelog.protocol.control_records import (
    KRaftVersionRecord,
    Voter,
    VotersRecord,
    decode_control,
)
from tidelog.protocol.errors import ApiError, ProtocolError
from tidelog.protocol.record_batch import BatchHeader
from tidelog.protocol.records import Record, decode_batches
from tidelog.protocol.schema import Message
from tidelog.storage.log import Log
from tidelog.world.files import Files

READ_BYTES = 4 << 20


@dataclass(slots=True)
class ReplayedLog:
    """What the log says from an offset on; the records of transactions that were aborted, or have
    not ended, are left out."""

    records: list[Message] = field(default_factory=list)
    epoch: int = 0
    timestamp_ms: int = -1
    kraft_version: int = 0
    voters: list[Voter] = field(default_factory=list)
    size_bytes: int = 0
    open_transaction_offset: int | None = None


def replay_log(log: Log, files: Files, start_offset: int) -> ReplayedLog:
    """Reads from `start_offset` to the end. Raises MetadataReplayError."""
    replayed = ReplayedLog()
    transactions = MetadataTransactions()
    for header, records in _batches(log, files, start_offset):
        replayed.epoch = max(replayed.epoch, header.partition_leader_epoch)
        replayed.timestamp_ms = max(replayed.timestamp_ms, header.max_timestamp)
        replayed.size_bytes += header.size_bytes
        for record in records:
            if header.is_control:
                _replay_control(record, replayed)
                continue
            replayed.records += transactions.take(_decode(record), record.offset)
    replayed.open_transaction_offset = transactions.begin_offset
    return replayed


def _batches(
    log: Log, files: Files, start_offset: int
) -> Iterator[tuple[BatchHeader, list[Record]]]:
    offset = start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, READ_BYTES, log.log_end_offset)
        if found.file_slice is None:
            raise MetadataReplayError(f"offset {offset} cannot be read")
        try:
            for header, records in decode_batches(found.file_slice.read(files)):
                if header.next_offset > start_offset:
                    yield header, records
        except ApiError as error:
            raise MetadataReplayError(f"the batch after offset {offset}: {error}") from error
        offset = found.next_offset


def _decode(record: Record) -> Message:
    try:
        return decode_record(record.value or b"")
    except ProtocolError as error:
        raise MetadataReplayError(f"the record at offset {record.offset}: {error}") from error


def _replay_control(record: Record, replayed: ReplayedLog) -> None:
    control = decode_control(record)
    if isinstance(control, KRaftVersionRecord):
        replayed.kraft_version = control.kraft_version
    elif isinstance(control, VotersRecord):
        replayed.voters = control.voters
