"""A log on disk without a log: segments that tests write batch by batch and compact."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidelog.protocol.compression import Compression
from tidelog.protocol.control_records import encode_end_marker
from tidelog.protocol.record_batch import BatchHeader
from tidelog.protocol.records import Record, decode_batches, encode_batch
from tidelog.storage.compaction.batch_filter import LastRecord
from tidelog.storage.compaction.cleaned_segment import cleaned_path
from tidelog.storage.compaction.compaction import (
    CompactedGroup,
    CompactionEnd,
    CompactionTask,
    SourceSegment,
    compact,
)
from tidelog.storage.segment.transaction_index import AbortedTransaction, TransactionIndex
from tidelog.world.operating_system.files import OsFiles


def ignore_bytes(_size_bytes: int) -> None:
    pass


@dataclass
class History:
    directory: Path
    next_offset: int = 0
    first_dirty_offset: int = 0
    bases: list[int] = field(default_factory=lambda: [0])
    open_transactions: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    last_records: dict[int, LastRecord] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path(0).touch()

    def path(self, base_offset: int) -> Path:
        return self.directory / f"{base_offset:020d}.log"

    def write(
        self,
        *records: tuple[bytes | None, bytes | None],
        timestamp: int = 1000,
        compression: Compression = Compression.NONE,
        producer_id: int = -1,
        transactional: bool = False,
    ) -> int:
        """Appends one batch; returns its base offset."""
        base_offset = self.next_offset
        sequence = -1 if producer_id < 0 else self.sequences.get(producer_id, 0)
        batch = encode_batch(
            [
                Record(base_offset + i, timestamp + i, key, value)
                for i, (key, value) in enumerate(records)
            ],
            base_offset=base_offset,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        self._append(batch, len(records))
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(records)
            self.last_records[producer_id] = LastRecord(self.next_offset - 1, 0)
        if transactional:
            self.open_transactions.setdefault(producer_id, base_offset)
        return base_offset

    def end_transaction(self, producer_id: int, *, commit: bool, timestamp: int = 1000) -> None:
        marker = encode_end_marker(
            producer_id=producer_id,
            producer_epoch=0,
            is_commit=commit,
            coordinator_epoch=0,
            timestamp_ms=timestamp,
            base_offset=self.next_offset,
        )
        offset = self.next_offset
        self._append(marker, 1)
        first_offset = self.open_transactions.pop(producer_id, None)
        if first_offset is not None and not commit:
            stable = self.last_stable_offset
            self.aborted.append(AbortedTransaction(producer_id, first_offset, offset, stable))

    def roll(self) -> None:
        if self.bases[-1] != self.next_offset:
            self.bases.append(self.next_offset)
            self.path(self.next_offset).touch()

    @property
    def last_stable_offset(self) -> int:
        return min(self.open_transactions.values(), default=self.next_offset)

    def task(
        self, *, now_ms: int, delete_retention_ms: int = 100, **options: Any
    ) -> CompactionTask:
        stable = self.last_stable_offset
        uncleanable = max(base for base in self.bases if base <= stable)
        return CompactionTask(
            directory=str(self.directory),
            segments=tuple(
                SourceSegment(str(self.path(base)), base, self.path(base).stat().st_size)
                for base in self.bases
                if base < uncleanable
            ),
            first_dirty_offset=min(self.first_dirty_offset, uncleanable),
            first_uncleanable_offset=uncleanable,
            aborted=tuple(self.aborted),
            last_records=dict(self.last_records),
            now_ms=now_ms,
            delete_retention_ms=delete_retention_ms,
            **options,
        )

    def compact(self, *, now_ms: int = 0, **options: int) -> list[CompactedGroup]:
        """One pass, swapped in without ceremony."""
        groups = []
        for event in compact(self.task(now_ms=now_ms, **options), OsFiles(), ignore_bytes):
            if isinstance(event, CompactionEnd):
                self.first_dirty_offset = event.next_dirty_offset
                continue
            groups.append(event)
            if event.changed:
                self.swap(event)
        return groups

    def swap(self, group: CompactedGroup) -> None:
        for base in group.old_base_offsets:
            self.path(base).unlink()
        cleaned_path(self.directory, group.base_offset, ".log").rename(self.path(group.base_offset))
        self.bases = [base for base in self.bases if base not in group.old_base_offsets[1:]]
        index = cleaned_path(self.directory, group.base_offset, ".txnindex")
        kept = TransactionIndex(OsFiles(), index, group.base_offset, exists=True).entries
        last = self._end_of(group.base_offset)
        outside = [
            entry for entry in self.aborted if not group.base_offset <= entry.last_offset < last
        ]
        self.aborted = sorted(outside + kept, key=lambda entry: entry.last_offset)

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        content = b"".join(self.path(base).read_bytes() for base in self.bases)
        return list(decode_batches(content))

    def committed(self) -> list[Record]:
        """What a read_committed consumer sees, by the transaction index, as Kafka's clients do."""
        waiting = sorted(self.aborted, key=lambda entry: entry.first_offset)
        aborting: set[int] = set()
        seen = []
        for header, records in self.batches():
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborting.add(waiting.pop(0).producer_id)
            if header.is_control:
                if records and records[0].key == b"\x00\x00\x00\x00":
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                seen += records
        return [record for record in seen if record.offset < self.last_stable_offset]

    def _append(self, batch: bytearray, count: int) -> None:
        with self.path(self.bases[-1]).open("ab") as file:
            file.write(batch)
        self.next_offset += count

    def _end_of(self, base_offset: int) -> int:
        later = [base for base in self.bases if base > base_offset]
        return later[0] if later else self.next_offset
