"""Reading the metadata log back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidelog.cluster.metadata.image_changes import MetadataReplayError
from tidelog.cluster.metadata.metadata_transactions import MetadataTransactions
from tidelog.cluster.metadata.records.framing import decode_record
from tidelog.protocol.control_records import KRaftVersionRecord, decode_control
from tidelog.protocol.errors import ApiError, ProtocolError
from tidelog.protocol.record_batch import BatchHeader
from tidelog.protocol.records import Record, decode_batches
from tidelog.protocol.schema import Message
from tidelog.storage.log import Log
from tidelog.world.files import Files

READ_BYTES = 4 << 20


@dataclass(slots=True)
class ReplayedLog:
    """What a part of the log says; the records of transactions that were aborted, or have not
    ended, are left out."""

    records: list[Message] = field(default_factory=list)
    epoch: int = 0
    timestamp_ms: int = -1
    kraft_version: int | None = None
    size_bytes: int = 0


class LogReplay:
    """Reads the log part by part, in order; a transaction may reach over several parts."""

    def __init__(self, log: Log, files: Files) -> None:
        self._log = log
        self._files = files
        self._transactions = MetadataTransactions()

    @property
    def open_transaction_offset(self) -> int | None:
        """Where a transaction begins that has not ended in what was read."""
        return self._transactions.begin_offset

    def restart(self) -> None:
        """A snapshot takes the place of what was read."""
        self._transactions = MetadataTransactions()

    def read(self, start_offset: int, end_offset: int) -> ReplayedLog:
        """What stands from `start_offset` up to `end_offset`. Raises MetadataReplayError."""
        replayed = ReplayedLog()
        for header, records in self._batches(start_offset, end_offset):
            replayed.epoch = max(replayed.epoch, header.partition_leader_epoch)
            if not header.is_control:
                # The leader's image passes over its control records without a look at them.
                replayed.timestamp_ms = max(replayed.timestamp_ms, header.max_timestamp)
            replayed.size_bytes += header.size_bytes
            for record in records:
                if not header.is_control:
                    replayed.records += self._transactions.take(_decode(record), record.offset)
                    continue
                control = decode_control(record)
                if isinstance(control, KRaftVersionRecord):
                    replayed.kraft_version = control.kraft_version
        return replayed

    def _batches(
        self, start_offset: int, end_offset: int
    ) -> Iterator[tuple[BatchHeader, list[Record]]]:
        offset = start_offset
        while offset < end_offset:
            found = self._log.read(offset, READ_BYTES, end_offset)
            if found.file_slice is None:
                raise MetadataReplayError(f"offset {offset} cannot be read")
            try:
                for header, records in decode_batches(found.file_slice.read(self._files)):
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
