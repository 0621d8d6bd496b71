"""Writing the markers that end transactions in their partitions.

A decided transaction is not over before every partition has its marker durably; a partition that
cannot take it now is tried again until it can. A marker written twice does no harm.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.cluster.replication.waiting import COMMITTED
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.coordinator.transaction_shard import WriteMarkers
from tidelog.promise import Promise
from tidelog.protocol.control_records import encode_end_marker
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.partition_lookup import hosted_partition
from tidelog.storage.append_result import Origin

if TYPE_CHECKING:
    from tidelog.server.node import Node

_RETRY_S = 0.2
# Nothing more is to be done for a partition that is gone, or that has seen a later epoch.
_SETTLED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


def write_marker(
    node: Node,
    topic_partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    coordinator_epoch: int,
    transaction_version: int,
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
    if topic == CONSUMER_OFFSETS_TOPIC:
        node.groups.transaction_ended(index, producer_id, producer_epoch, committed)
    if partition.high_watermark >= result.next_offset:
        return Promise.of(ErrorCode.NONE)
    wait = _MarkerWait()
    node.waiting.wait(partition, partition.leader_epoch, COMMITTED, result.next_offset, wait)
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
    """The markers of one transaction that are under way."""

    __slots__ = ("coordinator_epoch", "markers", "missing", "written")

    def __init__(self, markers: WriteMarkers, coordinator_epoch: int) -> None:
        self.markers = markers
        self.coordinator_epoch = coordinator_epoch
        self.written: Promise[None] = Promise()
        self.missing = set(markers.partitions)


class TransactionMarkers:
    """The markers that this node's coordinator has under way."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_closed = False

    def close(self) -> None:
        """Nothing is tried again from now on; the next start finishes what is decided."""
        self._is_closed = True

    def write(self, markers: WriteMarkers, coordinator_epoch: int) -> Promise[None]:
        """Writes all markers of a transaction. Settled when every partition has its own; never, if
        another coordinator does it or the node ends."""
        writing = _Writing(markers, coordinator_epoch)
        if not writing.missing:
            writing.written.resolve(None)
        for partition in sorted(markers.partitions):
            self._write_one(writing, partition)
        return writing.written

    def _write_one(self, writing: _Writing, partition: TopicPartition) -> None:
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
        marker.when_done(partial(self._settle, writing, partition))

    def _settle(
        self, writing: _Writing, partition: TopicPartition, marker: Promise[ErrorCode]
    ) -> None:
        code = marker.result()
        if code not in _SETTLED:
            self._retry(writing, partition, code)
            return
        writing.missing.discard(partition)
        if not writing.missing:
            writing.written.resolve(None)

    def _retry(self, writing: _Writing, partition: TopicPartition, code: ErrorCode) -> None:
        if self._is_closed:
            return
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self._node.log.warning("marker_of_fenced_coordinator", partition=partition)
            return

        def again() -> None:
            if not self._is_closed:
                self._write_one(writing, partition)

        self._node.log.debug("marker_delayed", partition=partition, error=code.name)
        self._node.reactor.call_later(_RETRY_S, again)
