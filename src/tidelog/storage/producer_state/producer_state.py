"""What a partition remembers of its idempotent and transactional producers.

A producer numbers its batches per partition. The log keeps the last five of each producer: a batch
that is among them is a retry and is answered with the offset it has already; the next in sequence
is appended; anything else is refused. A producer's epoch fences its older incarnations, and a
transaction is open from its first batch to its end marker.

`ProducerState` knows one producer; its checks raise ApiError and change nothing. `ProducerStates`
knows all of a partition. Replicated and replayed batches are noted without checks: the leader has
made them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.storage.segment.transaction_index import AbortedTransaction

BATCHES_KEPT = 5
SEQUENCE_MASK = (1 << 31) - 1  # after 2^31 - 1 comes 0
NO_SEQUENCE = -1
NO_EPOCH = -1
NO_OFFSET = -1


class BatchMetadata(NamedTuple):
    """A batch that a producer may send again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerState:
    """One producer in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_timestamp_ms",
        "producer_epoch",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp_ms: int = -1,
        transaction_first_offset: int = NO_OFFSET,
        batches: list[BatchMetadata] | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.transaction_first_offset = transaction_first_offset  # -1: no transaction is open
        self.batches = batches or []  # oldest first, at most BATCHES_KEPT, all of `producer_epoch`

    def copy(self) -> ProducerState:
        return ProducerState(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp_ms,
            self.transaction_first_offset,
            self.batches.copy(),
        )

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int | None:
        """Where its last batch ends; None when only a marker is known of this epoch."""
        return self.batches[-1].last_offset if self.batches else None

    def find_duplicate(self, epoch: int, first_sequence: int, count: int) -> BatchMetadata | None:
        """The kept batch with exactly these sequence numbers: the one that is being retried."""
        if epoch == self.producer_epoch:
            last_sequence = (first_sequence + count - 1) & SEQUENCE_MASK
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.offset_delta == count - 1:
                    return batch
        return None

    def check_batch(
        self, epoch: int, first_sequence: int, count: int, is_transactional: bool, is_client: bool
    ) -> BatchMetadata | None:
        """Whether a data batch may be appended; returns the batch that it repeats, if any."""
        batches = self.batches
        if (
            epoch != self.producer_epoch
            or not batches
            or first_sequence != (batches[-1][0] + 1) & SEQUENCE_MASK
        ):
            if is_client:
                duplicate = self.find_duplicate(epoch, first_sequence, count)
                if duplicate is not None:
                    return duplicate
            self.check_epoch(epoch)
            if is_client:
                self.check_sequence(epoch, first_sequence)
        if self.transaction_first_offset >= 0 and not is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {self.producer_id} sent a batch outside of its open transaction",
            )
        return None

    def check_epoch(self, epoch: int) -> None:
        if epoch < self.producer_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {self.producer_id} has epoch {epoch},"
                f" the last seen is {self.producer_epoch}",
            )

    def check_sequence(self, epoch: int, first_sequence: int) -> None:
        """Whether a batch comes next. A producer nobody remembers may start anywhere."""
        if self.producer_epoch == NO_EPOCH:
            return
        expected = (self.last_sequence + 1) & SEQUENCE_MASK if epoch == self.producer_epoch else 0
        if first_sequence != expected:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {self.producer_id} (epoch {epoch}) sent sequence {first_sequence},"
                f" expected was {expected}",
            )

    def check_marker(self, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """Whether an end marker is neither late nor from a fenced coordinator.

        From transaction version 2 on every transaction ends with a raised epoch, so a marker of
        the current epoch is a retry that must not end the transaction begun since.
        """
        self.check_epoch(epoch)
        if (
            transaction_version >= 2
            and epoch == self.producer_epoch
            and self.transaction_first_offset >= 0
        ):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker of epoch {epoch} came for the next transaction"
                f" of producer {self.producer_id}",
            )
        if coordinator_epoch < self.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} is below {self.coordinator_epoch},"
                f" the last seen for producer {self.producer_id}",
            )

    def add_batch(self, epoch: int, batch: BatchMetadata) -> None:
        batches = self.batches
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            batches.clear()
        elif len(batches) >= BATCHES_KEPT:
            del batches[0]
        batches.append(batch)
        self.last_timestamp_ms = batch.timestamp_ms

    def add_marker(self, epoch: int, coordinator_epoch: int, timestamp_ms: int) -> None:
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            self.batches.clear()
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = timestamp_ms
        self.transaction_first_offset = NO_OFFSET


class ProducerStates:
    """All producers of one partition, as of `map_end_offset`."""

    __slots__ = ("_ongoing", "map_end_offset", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerState] = {}
        # First offset of each open transaction -> producer, in ascending order of offsets.
        self._ongoing: dict[int, int] = {}
        self.map_end_offset = 0

    def __len__(self) -> int:
        return len(self.producers)

    def active(self) -> Iterator[ProducerState]:
        """Every producer that is remembered."""
        return iter(self.producers.values())

    def get(self, producer_id: int) -> ProducerState | None:
        return self.producers.get(producer_id)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest open transaction begins.

        Once its marker is written a transaction is decided for good (the coordinator's log
        decided before it sent markers), so completed ones need no further watching.
        """
        return next(iter(self._ongoing), None)

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        state = self.producers.get(producer_id)
        return (
            state is not None
            and state.producer_epoch == epoch
            and state.transaction_first_offset >= 0
        )

    def note_batch(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp_ms: int,
        is_transactional: bool,
    ) -> None:
        """Remembers a data batch that is in the log now."""
        state = self.producers.get(producer_id)
        if state is None:
            state = self.producers[producer_id] = ProducerState(producer_id)
        delta = last_offset - base_offset
        last_sequence = (
            NO_SEQUENCE if first_sequence < 0 else (first_sequence + delta) & SEQUENCE_MASK
        )
        state.add_batch(epoch, BatchMetadata(last_sequence, last_offset, delta, timestamp_ms))
        if is_transactional and state.transaction_first_offset < 0:
            state.transaction_first_offset = base_offset
            self._ongoing[base_offset] = producer_id

    def note_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        offset: int,
        timestamp_ms: int,
        is_commit: bool,
    ) -> AbortedTransaction | None:
        """Remembers an end marker; returns what the transaction index must hold, if anything."""
        state = self.producers.get(producer_id)
        if state is None:
            state = self.producers[producer_id] = ProducerState(producer_id)
        first_offset = state.transaction_first_offset
        state.add_marker(epoch, coordinator_epoch, timestamp_ms)
        if first_offset < 0:
            return None
        self._ongoing.pop(first_offset, None)
        if is_commit:
            return None
        first_unstable_offset = self.first_unstable_offset
        last_stable_offset = offset + 1 if first_unstable_offset is None else first_unstable_offset
        return AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers that have been silent for long; never one with an open transaction."""
        expired = [
            state.producer_id
            for state in self.producers.values()
            if state.transaction_first_offset < 0
            and now_ms - state.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]

    def load(self, states: list[ProducerState], offset: int) -> None:
        """Takes over the content of a snapshot."""
        self.producers = {state.producer_id: state for state in states}
        ongoing = [
            (state.transaction_first_offset, state.producer_id)
            for state in states
            if state.transaction_first_offset >= 0
        ]
        self._ongoing = dict(sorted(ongoing))
        self.map_end_offset = offset

    def clear(self, offset: int) -> None:
        self.load([], offset)
