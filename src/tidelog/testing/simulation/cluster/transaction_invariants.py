"""What must hold of transactions, between their coordinator's log and the logs that they write to.

- A partition takes the first batch of a transaction only when the coordinator's log says that the
  partition is part of it, and its marker has not been written there.
- A marker is written for a transaction that is decided, to a partition that is part of it, with the
  outcome that was decided, and not before the decision is committed.
- A marker ends no transaction that has begun after the one it is for. Transactions v1 have no means
  against that: a marker that comes late ends the next one of the same epoch. It is counted.
- The coordinators whose markers a partition has of a producer follow each other.
- A transaction is complete when every partition of it has its marker, and has committed it.

Read are the logs of whoever leads, as they grow. What was not committed when another one leads is
forgotten, and read again from that one's log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.cluster.replication.partition import Partition
from tidelog.cluster.topic_names import TRANSACTION_STATE_TOPIC
from tidelog.coordinator.records.transaction import (
    TRANSACTION_STATE,
    TransactionLogKey,
    TransactionLogValue,
)
from tidelog.coordinator.transaction import Transaction, TransactionStatus, from_record
from tidelog.protocol.control_records import EndMarker, decode_control
from tidelog.protocol.record_batch import BatchHeader
from tidelog.protocol.records import decode_records
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.simulation.cluster.log_reader import LogReader
from tidelog.testing.simulation.node import SimulatedNode
from tidelog.testing.simulation.simulation import Simulation

_NEVER = 1 << 62


@dataclass(slots=True, eq=False)
class _Transaction:
    """One transaction, from its first partition to its last marker."""

    state: TopicPartition
    """The partition of its coordinator's log."""
    producer_id: int
    producer_epoch: int
    begun_at: int
    partitions: set[TopicPartition]
    decided_at: int = _NEVER
    is_commit: bool = False
    marker_epoch: int = -1
    is_v2: bool = False
    marked: dict[TopicPartition, int] = field(default_factory=dict)
    """Where the marker stands in each partition that has it."""


@dataclass(slots=True)
class _Led:
    """A partition as its newest leader has it."""

    reader: LogReader
    partition: Partition
    leader_epoch: int
    next_offset: int
    checked_offset: int
    """What is below was committed, and looked at when it was written."""
    opened: dict[int, _Transaction] = field(default_factory=dict)
    """By producer: the transaction that is open."""
    coordinator_epochs: dict[int, int] = field(default_factory=dict)


class TransactionInvariants:
    """Watches the leaders of all partitions."""

    def __init__(self, simulation: Simulation, problem: Callable[[str], None]) -> None:
        self._simulation = simulation
        self._problem = problem
        self.on_decision: list[Callable[[SimulatedNode, TopicPartition], None]] = []
        """Hear which node has written the decision of a transaction, and to which partition."""
        self.on_change: list[Callable[[SimulatedNode], None]] = []
        """Hear which node has written that a transaction has begun, or has one more partition."""
        self._led: dict[TopicPartition, _Led] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._newest: dict[tuple[TopicPartition, str], _Transaction] = {}
        """By transactional id, and where its coordinator writes."""
        self._by_producer: dict[int, list[_Transaction]] = {}

    def look_at(self, which: SimulatedNode, moved: list[Partition]) -> None:
        """These partitions of a node are not what they were."""
        for partition in moved:
            key = TopicPartition(partition.topic, partition.partition)
            if partition.high_watermark > self._committed.get(key, 0):
                self._committed[key] = partition.high_watermark
        leaders = [each for each in moved if each.is_leader]
        # What the coordinator has written comes before what follows from it in the same turn.
        for partition in sorted(leaders, key=lambda each: each.topic != TRANSACTION_STATE_TOPIC):
            self._read(which, partition)

    def _read(self, which: SimulatedNode, partition: Partition) -> None:
        key = TopicPartition(partition.topic, partition.partition)
        led = self._led.get(key)
        log = partition.log
        is_state = key.topic == TRANSACTION_STATE_TOPIC
        if led is not None and partition.leader_epoch < led.leader_epoch:
            return
        if not is_state and led is None and not log.producers.producers:
            return
        if (
            led is None
            or led.partition is not partition
            or led.leader_epoch != partition.leader_epoch
            or led.reader.log is not log
        ):
            led = self._led[key] = self._begin(which, key, partition, led)
        end_offset = log.log_end_offset
        for header, batch in led.reader.read(led.next_offset, end_offset):
            if is_state:
                if not header.is_control:
                    self._note_states(which, key, header, batch)
            elif header.is_control:
                self._note_marker(key, led, header, batch)
            elif header.is_transactional:
                self._note_batch(key, led, header)
        led.next_offset = end_offset

    def _begin(
        self, which: SimulatedNode, key: TopicPartition, partition: Partition, before: _Led | None
    ) -> _Led:
        """Another one leads: what was not committed counts only if it has it."""
        known = 0 if before is None else min(self._committed.get(key, 0), before.next_offset)
        for transactions in self._by_producer.values():
            for each in transactions:
                if each.marked.get(key, -1) >= known:
                    del each.marked[key]
                if each.state == key and known <= each.decided_at:
                    each.decided_at = _NEVER
            transactions[:] = [
                each for each in transactions if each.state != key or each.begun_at < known
            ]
        self._newest = {
            name: each
            for name, each in self._newest.items()
            if each.state != key or each.begun_at < known
        }
        log = partition.log
        is_read_on = key.topic == TRANSACTION_STATE_TOPIC and before is not None
        begin = known if is_read_on else log.log_start_offset
        return _Led(LogReader(which, log), partition, partition.leader_epoch, begin, known)

    # The coordinator's log

    def _note_states(
        self, which: SimulatedNode, key: TopicPartition, header: BatchHeader, batch: memoryview
    ) -> None:
        for record in decode_records(batch, header):
            decoded = TRANSACTION_STATE.decode(record.key, record.value)
            if decoded is None or not isinstance(decoded.value, TransactionLogValue):
                continue
            assert isinstance(decoded.key, TransactionLogKey)
            state = from_record(decoded.key, decoded.value)
            self._note_state(key, record.offset, state)
            if state.status.is_prepared:
                for decided in tuple(self.on_decision):
                    decided(which, key)
            elif state.status is TransactionStatus.ONGOING:
                for changed in tuple(self.on_change):
                    changed(which)

    def _note_state(self, key: TopicPartition, offset: int, state: Transaction) -> None:
        newest = self._newest.get((key, state.transactional_id))
        if state.status is TransactionStatus.ONGOING:
            if newest is None or newest.decided_at != _NEVER:
                newest = _Transaction(key, state.producer_id, state.producer_epoch, offset, set())
                self._newest[key, state.transactional_id] = newest
                self._by_producer.setdefault(state.producer_id, []).append(newest)
            newest.partitions |= state.partitions
        elif state.status.is_prepared:
            if newest is None:
                return  # of a log that begins with it
            newest.decided_at = offset
            newest.is_commit = state.status is TransactionStatus.PREPARE_COMMIT
            newest.marker_epoch = state.producer_epoch
            newest.is_v2 = state.client_transaction_version >= 2
            newest.partitions = set(state.partitions)
        elif state.status.is_complete and newest is not None and newest.decided_at < offset:
            self._check_complete(state.transactional_id, newest)

    def _check_complete(self, name: str, transaction: _Transaction) -> None:
        without = [
            str(each)
            for each in sorted(transaction.partitions)
            if transaction.marked.get(each, _NEVER) >= self._committed.get(each, 0)
        ]
        if without:
            self._problem(
                f"{_told(transaction)} of {name} is complete, and its marker is not committed in "
                f"{', '.join(without)}"
            )

    # The logs that transactions write to

    def _note_batch(self, key: TopicPartition, led: _Led, header: BatchHeader) -> None:
        producer_id, epoch, offset = header.producer_id, header.producer_epoch, header.base_offset
        if producer_id in led.opened:
            return
        for each in self._by_producer.get(producer_id, ()):
            if (
                each.producer_epoch == epoch
                and key in each.partitions
                and offset < each.marked.get(key, _NEVER)
            ):
                led.opened[producer_id] = each
                return
        if offset >= led.checked_offset:
            self._problem(
                f"{key}: the batch at {offset} of producer {producer_id} in epoch {epoch} begins a "
                "transaction of which its coordinator does not know"
            )

    def _note_marker(
        self, key: TopicPartition, led: _Led, header: BatchHeader, batch: memoryview
    ) -> None:
        for record in decode_records(batch, header):
            marker = decode_control(record)
            if isinstance(marker, EndMarker):
                self._check_marker(key, led, header, marker)

    def _check_marker(
        self, key: TopicPartition, led: _Led, header: BatchHeader, marker: EndMarker
    ) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        offset = header.base_offset
        told = (
            f"{key}: the marker at {offset} of producer {producer_id} in epoch {epoch} "
            f"({'commit' if marker.is_commit else 'abort'})"
        )
        opened = led.opened.pop(producer_id, None)
        last_epoch = led.coordinator_epochs.get(producer_id, -1)
        led.coordinator_epochs[producer_id] = max(marker.coordinator_epoch, last_epoch)
        if offset < led.checked_offset:
            return
        if marker.coordinator_epoch < last_epoch:
            self._problem(
                f"{told} is of coordinator epoch {marker.coordinator_epoch}; {last_epoch} has "
                "written there before"
            )
        decided = [
            each
            for each in self._by_producer.get(producer_id, ())
            if each.decided_at != _NEVER
            and each.marker_epoch == epoch
            and each.is_commit == marker.is_commit
            and key in each.partitions
        ]
        if not decided:
            self._problem(f"{told} is of no transaction that was decided so")
            return
        committed = [
            each for each in decided if each.decided_at < self._committed.get(each.state, 0)
        ]
        if not committed:
            self._problem(f"{told} was written before its decision was committed")
            return
        unmarked = [each for each in committed if key not in each.marked]
        marked = unmarked[0] if unmarked else committed[-1]
        marked.marked.setdefault(key, offset)
        self._simulation.counts["markers of transactions"] += 1
        if not unmarked:
            self._simulation.counts["markers written again"] += 1
        if opened is None or opened in decided:
            return
        if marked.is_v2:
            self._problem(f"{told} ends {_told(opened)}, which has begun later")
        else:
            self._simulation.counts["late markers of transactions v1"] += 1


def _told(transaction: _Transaction) -> str:
    return (
        f"the transaction of producer {transaction.producer_id} in epoch "
        f"{transaction.producer_epoch} that began at {transaction.begun_at} of {transaction.state}"
    )
