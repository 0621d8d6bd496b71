"""Which fetched batches belong to aborted transactions.

A fetch of committed data lists the aborted transactions that overlap it, each with its producer and
its first offset. From that offset on, batches of the producer are dropped, until the marker in the
log that aborts it. The list is complete for one response, so nothing is carried to the next.
"""

from collections.abc import Iterable

from tidelog.protocol.control_records import EndMarker, decode_control
from tidelog.protocol.record_batch import BatchHeader, Buffer
from tidelog.protocol.records import decode_records


class AbortedTransactions:
    """The aborted transactions of one response.

    Batches are shown to it in the order of the log; those that are neither transactional nor
    control may be left out.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        """`transactions` are pairs of producer id and first offset."""
        # Latest first, so that the next one to begin is at the end.
        self._to_come = sorted(
            ((first_offset, producer_id) for producer_id, first_offset in transactions),
            reverse=True,
        )
        self._open: set[int] = set()

    @property
    def is_any(self) -> bool:
        """Whether any batch may still belong to one of them."""
        return bool(self._to_come or self._open)

    def covers(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether the batch at the start of `batch` is data of an aborted transaction."""
        to_come = self._to_come
        while to_come and to_come[-1][0] <= header.last_offset:
            self._open.add(to_come.pop()[1])
        if header.producer_id not in self._open:
            return False
        if header.is_control:
            if _is_abort_marker(header, batch):
                self._open.discard(header.producer_id)
            return False
        return header.is_transactional


def _is_abort_marker(header: BatchHeader, batch: Buffer) -> bool:
    for record in decode_records(batch, header):
        control = decode_control(record)
        return isinstance(control, EndMarker) and not control.is_commit
    return False
