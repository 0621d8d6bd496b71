"""What a node does from time to time: retention, producer expiry, checkpoints, snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.protocol.errors import ApiError

if TYPE_CHECKING:
    from tidelog.cluster.replication.partition import Partition
    from tidelog.server.node import Node

_STORE_INTERVAL_S = 1.0
_SNAPSHOT_INTERVAL_S = 10.0
_PARTITIONS_PER_TURN = 50


class Maintenance:
    """The timers of a node. They run on its loop, a bounded piece of work at a time."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def start(self) -> None:
        """Begin to run."""
        config = self._node.config
        self._node.metadata.fill_reserve()
        self._every(_STORE_INTERVAL_S, self._maintain_store)
        self._every(_SNAPSHOT_INTERVAL_S, self._snapshot)
        self._every(config.log_retention_check_interval_ms / 1000, self._delete_old_segments)
        self._every(config.producer_id_expiration_check_interval_ms / 1000, self._expire_producers)

    def start_of_controller(self) -> None:
        """The same for a node that has no broker."""
        self._node.metadata.fill_reserve()
        self._every(_STORE_INTERVAL_S, self._maintain_store)
        self._every(_SNAPSHOT_INTERVAL_S, self._snapshot)

    def _every(self, interval_s: float, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            finally:
                self._node.reactor.call_later(interval_s, run)

        self._node.reactor.call_later(interval_s, run)

    def _maintain_store(self) -> None:
        self._node.store.maintain(self._node.now_ms())
        self._node.metadata.fill_reserve()

    def _snapshot(self) -> None:
        self._node.metadata.snapshot_if_due(self._node.now_ms())

    def _delete_old_segments(self) -> None:
        node = self._node

        def delete_of(partition: Partition) -> None:
            log = partition.log
            try:
                count = log.delete_old_segments(node.now_ms(), partition.high_watermark)
            except OSError as error:
                if log.on_storage_error is not None:
                    log.on_storage_error(log, error)
                return
            if count:
                partition.note_start_moved()
                node.followed_partitions.start_moved(partition)
                node.log.info(
                    "segments_deleted",
                    partition=f"{partition.topic}-{partition.partition}",
                    segments=count,
                    log_start_offset=log.log_start_offset,
                )

        self._for_each_partition(delete_of)

    def _expire_producers(self) -> None:
        now_ms = self._node.now_ms()
        self._for_each_partition(lambda partition: partition.log.expire_producers(now_ms))

    def _for_each_partition(self, work: Callable[[Partition], object]) -> None:
        """A few partitions a turn, so that clients do not wait for all of them."""
        partitions = list(self._node.partitions)
        reactor = self._node.reactor

        def go_on() -> None:
            for _ in range(min(_PARTITIONS_PER_TURN, len(partitions))):
                partition = partitions.pop()
                try:
                    work(partition)
                except ApiError as error:
                    # Its disk has failed; that has been logged and others must not suffer.
                    self._node.log.debug("maintenance_failed", partition=partition, error=error)
            if partitions:
                reactor.call_later(0, go_on)

        go_on()
