"""Writing the markers that end transactions in their partitions.

A decided transaction is not over before every partition has its marker durably; a partition that
cannot take it now is tried again until it can. A marker written twice does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.coordinator.transaction_shard import WriteMarkers
from tidelog.protocol.control_records import encode_end_marker
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.partition_lookup import hosted_partition
from tidelog.storage.append_result import Origin

if TYPE_CHECKING:
    from tidelog.cluster.partition import Partition
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
    done: Callable[[ErrorCode], None],
) -> None:
    """Appends one marker; `done` gets the result once it is committed, at once if it fails."""
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
        done(error.code)
        return
    if topic == CONSUMER_OFFSETS_TOPIC:
        node.groups.transaction_ended(index, producer_id, producer_epoch, committed)
    _when_committed(partition, result.next_offset, done)


def _when_committed(
    partition: Partition, next_offset: int, done: Callable[[ErrorCode], None]
) -> None:
    """Calls `done` once everything below `next_offset` is committed, or never will be by us."""
    if partition.high_watermark >= next_offset:
        done(ErrorCode.NONE)
        return

    def on_progress(moved: Partition) -> None:
        if moved.high_watermark >= next_offset:
            code = ErrorCode.NONE
        elif not moved.is_leader:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            return
        partition.on_progress.remove(on_progress)
        done(code)

    partition.on_progress.append(on_progress)


class TransactionMarkers:
    """The markers that this node's coordinator has under way."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_closed = False

    def close(self) -> None:
        """Nothing is tried again from now on; the next start finishes what is decided."""
        self._is_closed = True

    def write(
        self, markers: WriteMarkers, coordinator_epoch: int, done: Callable[[], None]
    ) -> None:
        """Writes all markers of a transaction; `done` when every partition has its own."""
        missing = set(markers.partitions)
        if not missing:
            done()
            return

        def settle(partition: TopicPartition, code: ErrorCode) -> None:
            if code not in _SETTLED:
                self._retry(partition, code, write_one)
                return
            missing.discard(partition)
            if not missing:
                done()

        def write_one(partition: TopicPartition) -> None:
            write_marker(
                self._node,
                partition,
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                committed=markers.committed,
                coordinator_epoch=coordinator_epoch,
                transaction_version=markers.transaction_version,
                done=lambda code: settle(partition, code),
            )

        for partition in sorted(markers.partitions):
            write_one(partition)

    def _retry(
        self,
        partition: TopicPartition,
        code: ErrorCode,
        write_one: Callable[[TopicPartition], None],
    ) -> None:
        if self._is_closed:
            return
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self._node.log.warning("marker_of_fenced_coordinator", partition=partition)
            return

        def again() -> None:
            if not self._is_closed:
                write_one(partition)

        self._node.log.debug("marker_delayed", partition=partition, error=code.name)
        self._node.reactor.call_later(_RETRY_S, again)
