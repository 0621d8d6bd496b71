"""Which transactions a compaction pass walks through, and which of their markers it may drop.

A marker stays for as long as a batch of its transaction does, because readers need it to know
what became of that batch. Once no batch is left, the marker gets a delete horizon like a tombstone
and goes when that has passed.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.protocol.control_records import ControlType
from tidelog.protocol.record_batch import BatchHeader
from tidelog.storage.segment.transaction_index import AbortedTransaction


class CleanedTransactions:
    """Follows the transactions of a log from batch to batch, in offset order, over one pass."""

    __slots__ = ("_aborted_ongoing", "_aborted_seen", "_aborted_waiting", "_committed_ongoing")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted_waiting = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted_ongoing: dict[int, AbortedTransaction] = {}
        self._aborted_seen: set[int] = set()
        self._committed_ongoing: set[int] = set()

    def on_data_batch(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction, so that all of it can go."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted_ongoing:
            self._aborted_seen.add(header.producer_id)
            return True
        self._committed_ongoing.add(header.producer_id)
        return False

    def on_marker(
        self, header: BatchHeader, control_type: int | None
    ) -> tuple[bool, AbortedTransaction | None]:
        """Ends the producer's transaction. `control_type` is None for a batch already emptied.

        Returns whether the marker has outlived its transaction's batches, and, when an abort marker
        has not, the entry that the cleaned segment's transaction index needs."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if control_type is None:
            return True, None
        if control_type == ControlType.ABORT:
            entry = self._aborted_ongoing.pop(producer_id, None)
            if producer_id in self._aborted_seen:
                self._aborted_seen.discard(producer_id)
                return False, entry
            return True, None
        if control_type == ControlType.COMMIT:
            if producer_id in self._committed_ongoing:
                self._committed_ongoing.discard(producer_id)
                return False, None
            return True, None
        return False, None

    def _begin_up_to(self, offset: int) -> None:
        waiting = self._aborted_waiting
        while waiting and waiting[-1].first_offset <= offset:
            entry = waiting.pop()
            self._aborted_ongoing.setdefault(entry.producer_id, entry)
