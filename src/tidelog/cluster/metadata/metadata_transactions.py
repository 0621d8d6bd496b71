"""Transactions of the metadata log: records that count together or not at all.

Kafka puts a decision that is too large for one batch between a BeginTransactionRecord and an
EndTransactionRecord. Whoever replays the log holds such records back until the end, and forgets
them when the transaction is aborted. A controller that takes over a log whose transaction has not
ended has to abort it first, or all that it writes itself would belong to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.cluster.metadata.image_changes import MetadataReplayError
from tidelog.cluster.metadata.records.log_control import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from tidelog.protocol.schema import Message


class MetadataTransactions:
    """Lets records through as soon as they count, in the order of the log."""

    __slots__ = ("_held", "begin_offset")

    def __init__(self) -> None:
        self.begin_offset: int | None = None
        """Where the transaction that has not ended began; None outside of one."""
        self._held: list[Message] = []

    def take(self, record: Message, offset: int) -> Sequence[Message]:
        """What counts now that the record at `offset` is known. Raises MetadataReplayError."""
        if isinstance(record, BeginTransactionRecord):
            if self.begin_offset is not None:
                raise MetadataReplayError(
                    f"a transaction begins at offset {offset}, inside the one that began at offset "
                    f"{self.begin_offset}"
                )
            self.begin_offset = offset
            return ()
        if isinstance(record, (EndTransactionRecord, AbortTransactionRecord)):
            if self.begin_offset is None:
                raise MetadataReplayError(
                    f"a transaction ends at offset {offset}, and none has begun"
                )
            held, self._held, self.begin_offset = self._held, [], None
            return held if isinstance(record, EndTransactionRecord) else ()
        if self.begin_offset is None:
            return (record,)
        self._held.append(record)
        return ()
