"""Finds anomalies in the history of clients that sent to and polled from a log.

Modelled on the checker of Jepsen's Kafka tests. A test records what its clients did and what they
were told, one `Operation` per call or transaction, with values that are unique in the whole
history. The checker puts together, from everything anybody was told, which value stands at which
offset, and looks for what a log must never do. What Kafka's semantics allow is no anomaly: a skip
of offsets that hold nothing (aborted records, markers, compaction), or a jump after a rebalance.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.testing.history_cycles import find_cycles


class Outcome(StrEnum):
    """What a client knows about its operation afterwards."""

    OK = "ok"  # acknowledged; a transaction: committed
    FAILED = "failed"  # certainly did not happen; a transaction: aborted
    UNKNOWN = "unknown"  # a timeout or a lost connection: it may have happened


class Send(NamedTuple):
    """One record sent; the offset is None when the client was not told."""

    topic_partition: TopicPartition
    value: Hashable
    offset: int | None = None


class Polled(NamedTuple):
    """One record that a poll returned."""

    topic_partition: TopicPartition
    offset: int
    value: Hashable


@dataclass(slots=True)
class Operation:
    """One call of a client, or one transaction with the sends and polls in it.

    `process` is one client that does one thing after the other. `repositioned` says that its
    consumer was (re)assigned or moved before this operation: what it polls need not follow on.
    """

    process: Hashable
    outcome: Outcome = Outcome.OK
    sends: list[Send] = field(default_factory=list)
    polls: list[list[Polled]] = field(default_factory=list)
    repositioned: bool = False
    reads_uncommitted: bool = False
    """Whether its polls show what open transactions have sent, which proves no order."""


class AnomalyKind(StrEnum):
    LOST_WRITE = "lost write"  # acknowledged, not polled, though later offsets were
    UNSEEN = "unseen"  # acknowledged, and no poll has come so far
    DUPLICATE = "duplicate"  # one value at several offsets
    INCONSISTENT_OFFSETS = "inconsistent offsets"  # several values at one offset
    ABORTED_READ = "aborted read"  # polled, though its send failed or was aborted
    PRECOMMITTED_READ = "pre-committed read"  # a transaction polled what it had sent itself
    POLL_SKIP = "poll skip"  # consecutive polls of a client left records out
    NONMONOTONIC_POLL = "non-monotonic poll"  # a client's poll went back
    NONMONOTONIC_SEND = "non-monotonic send"  # a client's later record has a lower offset
    CYCLE = "cycle"  # operations each of which has seen another's doing
    INTERNAL_POLL_SKIP = "poll skip inside one operation"
    INTERNAL_NONMONOTONIC_POLL = "non-monotonic poll inside one operation"
    INTERNAL_NONMONOTONIC_SEND = "non-monotonic send inside one operation"


class Anomaly(NamedTuple):
    """Something that must not be in a history, told so that a person can find it."""

    kind: AnomalyKind
    topic_partition: TopicPartition
    description: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.topic_partition}: {self.description}"


class HistoryError(TidelogError):
    """A history has anomalies; the text lists the first of them."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the checker found."""

    anomalies: list[Anomaly]
    sent: int
    acknowledged: int
    polled: int

    @property
    def is_valid(self) -> bool:
        return not self.anomalies

    def of(self, kind: AnomalyKind) -> list[Anomaly]:
        return [anomaly for anomaly in self.anomalies if anomaly.kind is kind]

    def raise_for_anomalies(self) -> None:
        if self.anomalies:
            shown = "\n".join(f"  {anomaly}" for anomaly in self.anomalies[:20])
            raise HistoryError(f"{len(self.anomalies)} anomalies:\n{shown}")


def check_history(history: Sequence[Operation]) -> Report:
    """Checks the operations, which must be in the order in which each process did them."""
    log = _ObservedLog(history)
    anomalies = [
        *log.inconsistent_offsets(),
        *log.duplicates(),
        *log.lost_and_unseen(),
        *log.aborted_reads(),
        *_precommitted_reads(history),
        *_poll_order(history, log),
        *_send_order(history),
        *_cycles(history),
    ]
    return Report(
        anomalies,
        sent=sum(len(operation.sends) for operation in history),
        acknowledged=len(log.acknowledged),
        polled=sum(len(poll) for operation in history for poll in operation.polls),
    )


class _ObservedLog:
    """What stands where, put together from all that clients were told."""

    def __init__(self, history: Sequence[Operation]) -> None:
        self.values: dict[TopicPartition, dict[int, set[Hashable]]] = defaultdict(dict)
        self.acknowledged: list[Send] = []
        self.failed: dict[Hashable, Operation] = {}
        self.polled: dict[TopicPartition, dict[Hashable, set[int]]] = defaultdict(dict)
        for operation in history:
            for send in operation.sends:
                self._note_send(operation, send)
            for poll in operation.polls:
                for record in poll:
                    self._note(record.topic_partition, record.offset, record.value)
                    offsets = self.polled[record.topic_partition].setdefault(record.value, set())
                    offsets.add(record.offset)
        self.offsets = {tp: sorted(values) for tp, values in self.values.items()}

    def _note_send(self, operation: Operation, send: Send) -> None:
        if operation.outcome is Outcome.FAILED:
            self.failed[send.value] = operation
            return
        if send.offset is not None:
            self._note(send.topic_partition, send.offset, send.value)
        if operation.outcome is Outcome.OK:
            self.acknowledged.append(send)

    def _note(self, topic_partition: TopicPartition, offset: int, value: Hashable) -> None:
        self.values[topic_partition].setdefault(offset, set()).add(value)

    def inconsistent_offsets(self) -> Iterator[Anomaly]:
        for topic_partition, values in self.values.items():
            for offset, seen in sorted(values.items()):
                if len(seen) > 1:
                    yield Anomaly(
                        AnomalyKind.INCONSISTENT_OFFSETS,
                        topic_partition,
                        f"offset {offset} holds {_list(seen)}",
                    )

    def duplicates(self) -> Iterator[Anomaly]:
        for topic_partition, values in self.values.items():
            offsets: dict[Hashable, list[int]] = defaultdict(list)
            for offset, seen in sorted(values.items()):
                for value in seen:
                    offsets[value].append(offset)
            for value, places in offsets.items():
                if len(places) > 1:
                    yield Anomaly(
                        AnomalyKind.DUPLICATE,
                        topic_partition,
                        f"{value!r} stands at offsets {_list(places)}",
                    )

    def lost_and_unseen(self) -> Iterator[Anomaly]:
        highest_polled: dict[TopicPartition, int] = defaultdict(lambda: -1)
        for topic_partition, polled in self.polled.items():
            highest_polled[topic_partition] = max(map(max, polled.values()))
        for send in self.acknowledged:
            topic_partition, value, offset = send
            if value in self.polled[topic_partition]:
                continue
            highest = highest_polled[topic_partition]
            if offset is not None and offset < highest:
                yield Anomaly(
                    AnomalyKind.LOST_WRITE,
                    topic_partition,
                    f"{value!r} was acknowledged at offset {offset} and never polled, but offset "
                    f"{highest} was",
                )
            else:
                yield Anomaly(
                    AnomalyKind.UNSEEN,
                    topic_partition,
                    f"{value!r} was acknowledged at offset {offset} and never polled",
                )

    def aborted_reads(self) -> Iterator[Anomaly]:
        for topic_partition, polled in self.polled.items():
            for value, offsets in polled.items():
                if value in self.failed:
                    yield Anomaly(
                        AnomalyKind.ABORTED_READ,
                        topic_partition,
                        f"{value!r} was polled at {_list(offsets)}, but its send by "
                        f"{self.failed[value].process!r} failed or was aborted",
                    )

    def next_offset_after(self, topic_partition: TopicPartition, offset: int) -> int | None:
        """The first offset above `offset` that somebody saw a record at."""
        offsets = self.offsets.get(topic_partition, [])
        at = bisect_right(offsets, offset)
        return offsets[at] if at < len(offsets) else None


def _precommitted_reads(history: Sequence[Operation]) -> Iterator[Anomaly]:
    for operation in history:
        own = {send.value for send in operation.sends}
        for poll in operation.polls:
            for record in poll:
                if record.value in own:
                    yield Anomaly(
                        AnomalyKind.PRECOMMITTED_READ,
                        record.topic_partition,
                        f"{operation.process!r} polled {record.value!r} at offset {record.offset} "
                        "in the transaction that sent it",
                    )


def _poll_order(history: Sequence[Operation], log: _ObservedLog) -> Iterator[Anomaly]:
    positions: dict[Hashable, dict[TopicPartition, int]] = defaultdict(dict)
    for operation in history:
        if operation.repositioned:
            positions[operation.process].clear()
        last_of = positions[operation.process]
        within: set[TopicPartition] = set()
        for record in (record for poll in operation.polls for record in poll):
            topic_partition, offset, _ = record
            last = last_of.get(topic_partition)
            if last is not None:
                kind = _poll_anomaly(log, topic_partition, last, offset)
                if kind is not None:
                    yield Anomaly(
                        _INTERNAL[kind] if topic_partition in within else kind,
                        topic_partition,
                        f"{operation.process!r} polled offset {offset} after {last}",
                    )
            last_of[topic_partition] = offset
            within.add(topic_partition)


def _poll_anomaly(
    log: _ObservedLog, topic_partition: TopicPartition, last: int, offset: int
) -> AnomalyKind | None:
    if offset <= last:
        return AnomalyKind.NONMONOTONIC_POLL
    expected = log.next_offset_after(topic_partition, last)
    return AnomalyKind.POLL_SKIP if expected is not None and expected < offset else None


def _send_order(history: Sequence[Operation]) -> Iterator[Anomaly]:
    positions: dict[Hashable, dict[TopicPartition, int]] = defaultdict(dict)
    for operation in history:
        if operation.outcome is Outcome.FAILED:
            continue
        last_of = positions[operation.process]
        within: set[TopicPartition] = set()
        for topic_partition, value, offset in operation.sends:
            if offset is None:
                continue
            last = last_of.get(topic_partition)
            if last is not None and offset <= last:
                kind = AnomalyKind.NONMONOTONIC_SEND
                yield Anomaly(
                    _INTERNAL[kind] if topic_partition in within else kind,
                    topic_partition,
                    f"{operation.process!r} sent {value!r} to offset {offset} after {last}",
                )
            last_of[topic_partition] = offset
            within.add(topic_partition)


def _cycles(history: Sequence[Operation]) -> Iterator[Anomaly]:
    failed = [
        place for place, each in enumerate(history) if each.outcome is Outcome.FAILED and each.sends
    ]
    for cycle in find_cycles(history, failed):
        yield Anomaly(AnomalyKind.CYCLE, cycle.topic_partition, cycle.tell(history))


_INTERNAL = {
    AnomalyKind.POLL_SKIP: AnomalyKind.INTERNAL_POLL_SKIP,
    AnomalyKind.NONMONOTONIC_POLL: AnomalyKind.INTERNAL_NONMONOTONIC_POLL,
    AnomalyKind.NONMONOTONIC_SEND: AnomalyKind.INTERNAL_NONMONOTONIC_SEND,
}


def _list(values: Iterable[Hashable]) -> str:
    return ", ".join(sorted(map(repr, values)))
