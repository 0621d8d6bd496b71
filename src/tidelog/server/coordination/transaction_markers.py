"""Writing the markers that end transactions in their partitions, on whichever node leads them.

A decided transaction is not over before every partition has its marker committed. A partition that
this node leads gets it directly; the markers for partitions of another node go there together, as
WriteTxnMarkers. Where that fails, because the leader has moved, cannot be reached or has too few
replicas in sync, it is tried again with the leader of then: after a pause that grows, and at once
when the metadata names another leader. That goes on for as long as the coordinator leads its
partition at the epoch at which the transaction was decided or loaded. A marker written twice does
no harm.

    write ──▶ by leader ──┬─ this node ──▶ append, wait for the commit ──┬─▶ written
                 ▲        ├─ another ────▶ queue ──▶ WriteTxnMarkers ────┤
                 │        └─ none ───────▶ pause                         │
                 └───────────── pause, or another leader ◀──retriable────┘
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import NO_LEADER
from tidelog.cluster.replication.waiting import COMMITTED
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.coordinator.transaction_shard import WriteMarkers
from tidelog.promise import Promise
from tidelog.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.protocol.control_records import encode_end_marker
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peers import Purpose, UnknownNodeError
from tidelog.server.partition_lookup import hosted_partition
from tidelog.storage.append_result import Origin

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import MetadataDelta
    from tidelog.protocol.schema import Message
    from tidelog.server.network.peer_connection import PeerError
    from tidelog.server.network.reactor import Timer
    from tidelog.server.node import Node

_PAUSE_S_MIN = 0.05
_PAUSE_S_MAX = 1.0
_CALL_TIMEOUT_S = 30.0
# To each node; what comes meanwhile is sent together when it is answered.
REQUESTS_IN_FLIGHT_MAX = 1
MARKERS_PER_REQUEST_MAX = 1000
# Errors that pass; others are told, and tried again too.
_RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
# A partition that has seen a later epoch of the producer has had the marker of this one.
_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH})
_NOWHERE = (NO_LEADER, -1)


def write_marker(
    node: Node,
    topic_partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    coordinator_epoch: int,
    transaction_version: int,
    timeout_s: float = inf,
) -> Promise[ErrorCode]:
    """Appends one marker. The promise comes to NONE when it is committed, else to what is wrong."""
    topic, index = topic_partition
    now_ms = node.now_ms()
    marker = encode_end_marker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_commit=committed,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=now_ms,
    )
    try:
        partition = hosted_partition(node, topic, index)
        result = partition.append_as_leader(
            memoryview(marker),
            now_ms,
            origin=Origin.COORDINATOR,
            transaction_version=transaction_version,
        )
    except ApiError as error:
        return Promise.of(error.code)
    node.transactions.appends.transaction_ended(topic_partition, producer_id, producer_epoch)
    if topic == CONSUMER_OFFSETS_TOPIC:
        node.groups.transaction_ended(
            index, producer_id, producer_epoch, committed, result.next_offset
        )
    if partition.high_watermark >= result.next_offset:
        return Promise.of(ErrorCode.NONE)
    wait = _MarkerWait()
    node.waiting.wait(
        partition,
        partition.leader_epoch,
        COMMITTED,
        result.next_offset,
        wait,
        deadline=inf if timeout_s is inf else node.reactor.now + timeout_s,
    )
    return wait.promise


class _MarkerWait:
    """A marker that is not committed yet."""

    __slots__ = ("promise",)

    def __init__(self) -> None:
        self.promise: Promise[ErrorCode] = Promise()

    def reached(self, place: int, /) -> None:
        self.promise.resolve(ErrorCode.NONE)

    def refused(self, place: int, code: ErrorCode, /) -> None:
        self.promise.resolve(code)


class _Writing:
    """The markers of one transaction that are under way.

    missing: partitions without their marker. tried: the leader and its epoch that was last asked
    for, of those of them that pause or are with another node.
    """

    __slots__ = (
        "coordinator_epoch",
        "failures",
        "index",
        "markers",
        "missing",
        "paused",
        "timer",
        "tried",
        "written",
    )

    def __init__(self, markers: WriteMarkers, index: int, coordinator_epoch: int) -> None:
        self.markers = markers
        self.index = index
        self.coordinator_epoch = coordinator_epoch
        self.written: Promise[None] = Promise()
        self.missing = set(markers.partitions)
        self.paused: set[TopicPartition] = set()
        self.tried: dict[TopicPartition, tuple[int, int]] = {}
        self.failures = 0
        self.timer: Timer | None = None

    def stop(self) -> None:
        """Somebody else ends the transaction, or nobody has to any more."""
        self.missing.clear()
        self.paused.clear()
        self.tried.clear()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _Destination:
    """What waits to be sent to one other node."""

    __slots__ = ("in_flight", "queued")

    def __init__(self) -> None:
        self.queued: dict[_Writing, set[TopicPartition]] = {}
        self.in_flight = 0

    def take(self) -> list[tuple[_Writing, set[TopicPartition]]]:
        """The next request's share, of transactions that are not over meanwhile."""
        taken: list[tuple[_Writing, set[TopicPartition]]] = []
        count = 0
        while self.queued and count < MARKERS_PER_REQUEST_MAX:
            writing = next(iter(self.queued))
            partitions = self.queued.pop(writing) & writing.missing
            if partitions:
                taken.append((writing, partitions))
                count += len(partitions)
        return taken


class TransactionMarkers:
    """The markers that this node's coordinators have under way."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_closed = False
        self._writings: dict[_Writing, None] = {}
        self._destinations: dict[int, _Destination] = {}

    @property
    def count(self) -> int:
        """Transactions whose markers are under way."""
        return len(self._writings)

    def close(self) -> None:
        """Nothing is tried again from now on; the next start finishes what is decided."""
        self._is_closed = True
        for writing in self._writings:
            writing.stop()
        self._writings.clear()

    def write(self, markers: WriteMarkers, index: int, coordinator_epoch: int) -> Promise[None]:
        """Writes all markers of a transaction, for the shard `index` of that leader epoch. Settled
        when every partition has its own; never, if another coordinator does it or the node ends."""
        writing = _Writing(markers, index, coordinator_epoch)
        if not writing.missing:
            writing.written.resolve(None)
            return writing.written
        self._writings[writing] = None
        self._send(writing, sorted(markers.partitions))
        return writing.written

    def forget(self, index: int) -> None:
        """The shard is not ours any more: whoever has it writes these markers again."""
        for writing in [each for each in self._writings if each.index == index]:
            self._stop(writing)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Goes on at once with what waits for a leader that has changed."""
        if not self._writings or not (
            delta.changed_topics or delta.deleted_topics or delta.created_topics or delta.brokers
        ):
            return
        for writing in list(self._writings):
            moved = [each for each in writing.tried if self._leader(each) != writing.tried[each]]
            if moved:
                self._send(writing, sorted(moved))

    # Sending

    def _leader(self, topic_partition: TopicPartition) -> tuple[int, int] | None:
        """Who takes the marker now, with the epoch: NO_LEADER for nobody, None for a partition that
        does not exist."""
        image = self._node.image
        partition = image.partition(*topic_partition)
        if partition is None:
            return None
        broker = image.brokers.get(partition.leader)
        is_there = broker is not None and not broker.fenced
        return partition.leader if is_there else NO_LEADER, partition.leader_epoch

    def _send(self, writing: _Writing, partitions: Iterable[TopicPartition]) -> None:
        own_id = self._node.config.node_id
        nodes: set[int] = set()
        for each in partitions:
            writing.paused.discard(each)
            writing.tried.pop(each, None)
            leader = self._leader(each)
            if leader is None:
                # Deleted, and the transaction's records with it.
                self._written(writing, each)
                continue
            if leader[0] == own_id:
                self._write_here(writing, each)
                continue
            writing.tried[each] = leader
            if leader[0] == NO_LEADER:
                self._pause(writing, each)
                continue
            destination = self._destinations.setdefault(leader[0], _Destination())
            destination.queued.setdefault(writing, set()).add(each)
            nodes.add(leader[0])
        for node_id in nodes:
            self._send_queued(node_id)

    def _write_here(self, writing: _Writing, partition: TopicPartition) -> None:
        markers = writing.markers
        marker = write_marker(
            self._node,
            partition,
            producer_id=markers.producer_id,
            producer_epoch=markers.producer_epoch,
            committed=markers.committed,
            coordinator_epoch=writing.coordinator_epoch,
            transaction_version=markers.transaction_version,
        )
        marker.when_done(partial(self._answered_here, writing, partition))

    def _answered_here(
        self, writing: _Writing, partition: TopicPartition, marker: Promise[ErrorCode]
    ) -> None:
        self._answered(writing, partition, marker.result())

    def _send_queued(self, node_id: int) -> None:
        destination = self._destinations[node_id]
        while destination.queued and destination.in_flight < REQUESTS_IN_FLIGHT_MAX:
            batch = destination.take()
            if not batch:
                return
            try:
                peer = self._node.peers.to(node_id, Purpose.TRANSACTIONS)
            except UnknownNodeError:
                self._failed(node_id, batch, ErrorCode.LEADER_NOT_AVAILABLE)
                continue
            destination.in_flight += 1
            peer.call(
                WriteTxnMarkersRequest(markers=[_marker(*each) for each in batch]),
                partial(self._responded, node_id, batch),
                timeout_s=_CALL_TIMEOUT_S,
            )

    # Answers

    def _responded(
        self,
        node_id: int,
        batch: list[tuple[_Writing, set[TopicPartition]]],
        response: Message | None,
        error: PeerError | None,
    ) -> None:
        self._destinations[node_id].in_flight -= 1
        try:
            if error is not None:
                self._node.log.debug("markers_not_sent", node=node_id, error=error)
                self._failed(node_id, batch, ErrorCode.NETWORK_EXCEPTION)
            else:
                assert isinstance(response, WriteTxnMarkersResponse)
                self._read(node_id, batch, response)
        finally:
            if not self._is_closed:
                self._send_queued(node_id)

    def _read(
        self,
        node_id: int,
        batch: list[tuple[_Writing, set[TopicPartition]]],
        response: WriteTxnMarkersResponse,
    ) -> None:
        codes = {
            (row.producer_id, TopicPartition(topic.name, each.partition_index)): each.error_code
            for row in response.markers
            for topic in row.topics
            for each in topic.partitions
        }
        for writing, partitions in batch:
            for each in sorted(partitions):
                code = codes.get((writing.markers.producer_id, each))
                if code is None:
                    code = ErrorCode.UNKNOWN_SERVER_ERROR  # the answer has no such row
                self._answered(writing, each, ErrorCode(code), node_id)

    def _failed(
        self,
        node_id: int,
        batch: list[tuple[_Writing, set[TopicPartition]]],
        code: ErrorCode,
    ) -> None:
        for writing, partitions in batch:
            for each in sorted(partitions):
                self._answered(writing, each, code, node_id)

    def _answered(
        self,
        writing: _Writing,
        partition: TopicPartition,
        code: ErrorCode,
        node_id: int | None = None,
    ) -> None:
        if partition not in writing.missing:
            return  # written otherwise meanwhile, or not ours to write any more
        if code in _WRITTEN:
            self._written(writing, partition)
            return
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            # The partition knows a later coordinator, which writes these markers; this one is
            # about to hear of it.
            self._node.log.warning("marker_of_fenced_coordinator", partition=partition)
            self._stop(writing)
            return
        if node_id is not None and writing.tried.get(partition, _NOWHERE)[0] != node_id:
            return  # another node has it already
        if code not in _RETRIABLE:
            self._node.log.warning("marker_refused", partition=partition, error=code.name)
        self._pause(writing, partition)

    def _written(self, writing: _Writing, partition: TopicPartition) -> None:
        writing.missing.discard(partition)
        writing.tried.pop(partition, None)
        writing.paused.discard(partition)
        if not writing.missing and writing in self._writings:
            self._stop(writing)
            writing.written.resolve(None)

    def _stop(self, writing: _Writing) -> None:
        self._writings.pop(writing, None)
        writing.stop()

    # Trying again

    def _pause(self, writing: _Writing, partition: TopicPartition) -> None:
        if self._is_closed:
            return
        writing.paused.add(partition)
        writing.tried.setdefault(partition, self._leader(partition) or _NOWHERE)
        if writing.timer is None:
            pause_s = min(_PAUSE_S_MIN * 2**writing.failures, _PAUSE_S_MAX)
            writing.failures = min(writing.failures + 1, 10)
            writing.timer = self._node.reactor.call_later(
                pause_s, partial(self._pause_is_over, writing)
            )

    def _pause_is_over(self, writing: _Writing) -> None:
        writing.timer = None
        if not self._is_closed:
            self._send(writing, sorted(writing.paused))


def _marker(writing: _Writing, partitions: set[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    markers = writing.markers
    return WritableTxnMarker(
        producer_id=markers.producer_id,
        producer_epoch=markers.producer_epoch,
        transaction_result=markers.committed,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
        coordinator_epoch=writing.coordinator_epoch,
        transaction_version=markers.transaction_version,
    )
