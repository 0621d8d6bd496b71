"""The transaction coordinator of the node: the shards of `__transaction_state`, the markers they
ask for, and the way of a request to its shard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidelog.cluster.features import TRANSACTION_VERSION
from tidelog.cluster.topic_names import TRANSACTION_STATE_TOPIC
from tidelog.coordinator.records.transaction import TRANSACTION_STATE
from tidelog.coordinator.shard import CoordinatorResult
from tidelog.coordinator.transaction_shard import (
    TransactionOptions,
    TransactionShard,
    WriteMarkers,
)
from tidelog.promise import Promise, settle_all
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.coordination.internal_topics import partition_for
from tidelog.server.coordination.producer_ids import ProducerIds
from tidelog.server.coordination.shard_host import ShardHost
from tidelog.server.coordination.transaction_markers import TransactionMarkers
from tidelog.server.coordination.transactional_appends import TransactionalAppends

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import MetadataDelta, MetadataImage
    from tidelog.server.network.reactor import Timer
    from tidelog.server.node import Node

Result = TypeVar("Result")
Operation = Callable[[TransactionShard, int], CoordinatorResult[Result]]

_COMPLETE_RETRY_S = 1.0
# How long a request that needs the previous transaction to be over waits for that here, where it
# is a matter of milliseconds, before its client is told to ask again.
_COMPLETION_WAIT_S = 1.0


class TransactionCoordinator:
    """`node.transactions`. Start it once the node's partitions are there."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.producer_ids = ProducerIds(node)
        self.markers = TransactionMarkers(node)
        self.appends = TransactionalAppends(node, self)
        self.host: ShardHost[TransactionShard] = ShardHost(
            node,
            TRANSACTION_STATE_TOPIC,
            TRANSACTION_STATE,
            self._make_shard,
            on_effects=self._write_markers,
            on_lost=self.markers.forget,
        )
        self._completion_waiters: dict[str, list[_Waiter]] = {}

    def start(self) -> None:
        self.host.start(self._node.image)
        self._node.metadata.listeners.append(self._metadata_changed)

    def close(self) -> None:
        self.appends.close()
        self.markers.close()
        self.host.close()

    # Requests

    def submit(self, transactional_id: str, operation: Operation[Result]) -> Promise[Result]:
        """Runs `operation` on the shard of a transactional id; see `ShardHost.submit`."""
        count = self.host.partition_count()
        if count == 0:
            return Promise.failed(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return self.host.submit(partition_for(transactional_id, count), operation)

    def node_of(self, transactional_id: str) -> int | None:
        """The node that coordinates a transactional id, None while there is none."""
        image = self._node.image
        topic = image.topics_by_name.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        broker = image.brokers.get(leader)
        return None if broker is None or broker.fenced else leader

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        client_transaction_version: int,
        *,
        waits: bool = True,
    ) -> Promise[ErrorCode]:
        """Makes partitions part of a transaction; the result is NONE, or an ApiError. While the
        previous one completes, this waits a moment for it rather than sending the client into its
        back-off; not so for another node, which asks for many at once and asks again by itself."""

        def add(shard: TransactionShard, now_ms: int) -> CoordinatorResult[ErrorCode]:
            return shard.add_partitions(
                transactional_id,
                producer_id,
                producer_epoch,
                partitions,
                now_ms,
                client_transaction_version=client_transaction_version,
            )

        added: Promise[ErrorCode] = Promise()

        def again(_: object) -> None:
            self.submit(transactional_id, add).when_done(added.settle_like)

        def take_or_wait(first: Promise[ErrorCode]) -> None:
            error = first.error
            is_early = (
                isinstance(error, ApiError) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS
            )
            if waits and is_early:
                self._completion(transactional_id).when_done(again)
            else:
                added.settle_like(first)

        self.submit(transactional_id, add).when_done(take_or_wait)
        return added

    # Markers

    def _write_markers(self, index: int, leader_epoch: int, effects: list[WriteMarkers]) -> None:
        for markers in effects:
            written = self.markers.write(markers, index, leader_epoch)
            written.when_done(partial(self._complete, index, leader_epoch, markers))

    def _complete(
        self, index: int, leader_epoch: int, markers: WriteMarkers, _: object = None
    ) -> None:
        completed = self.host.submit(
            index,
            lambda shard, now_ms: shard.markers_written(markers, now_ms),
            leader_epoch=leader_epoch,
        )
        completed.when_done(partial(self._completed, index, leader_epoch, markers))
        self._release(markers.transactional_id)

    def _completed(
        self, index: int, leader_epoch: int, markers: WriteMarkers, completed: Promise[ErrorCode]
    ) -> None:
        # Without its record the transaction would stay prepared; who took over the partition
        # meanwhile writes the markers again. The code does not tell: NOT_COORDINATOR is also what
        # a log says that cannot take the record now.
        if completed.error is not None and self.host.is_hosting(index, leader_epoch):
            self._node.reactor.call_later(
                _COMPLETE_RETRY_S, partial(self._complete, index, leader_epoch, markers)
            )

    def _completion(self, transactional_id: str) -> Promise[None]:
        """Settled when the transaction's markers are written, or after a while anyway."""
        waiters = self._completion_waiters.setdefault(transactional_id, [])
        waiter = _Waiter()
        waiters.append(waiter)

        def give_up() -> None:
            waiters.remove(waiter)
            if not waiters and self._completion_waiters.get(transactional_id) is waiters:
                del self._completion_waiters[transactional_id]
            waiter.promise.resolve(None)

        waiter.timer = self._node.reactor.call_later(_COMPLETION_WAIT_S, give_up)
        return waiter.promise

    def _release(self, transactional_id: str) -> None:
        waiters = self._completion_waiters.pop(transactional_id, ())
        for waiter in waiters:
            if waiter.timer is not None:
                waiter.timer.cancel()
        settle_all(partial(waiter.promise.resolve, None) for waiter in waiters)

    # Shards

    def _make_shard(self, index: int) -> TransactionShard:
        return TransactionShard(self._options(self._node.image), self.producer_ids.take)

    def _options(self, image: MetadataImage) -> TransactionOptions:
        config = self._node.config
        return TransactionOptions(
            timeout_max_ms=config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
            abort_check_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiry_check_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
            transaction_version=image.features.get(TRANSACTION_VERSION, 0),
        )

    def _metadata_changed(
        self, old: MetadataImage, new: MetadataImage, delta: MetadataDelta
    ) -> None:
        self.host.refresh(new)
        self.markers.metadata_changed(delta)
        self.appends.metadata_changed(delta)
        if delta.features or delta.configs:
            options = self._options(new)
            for _, shard in self.host.shards():
                shard.options = options


class _Waiter:
    __slots__ = ("promise", "timer")

    def __init__(self) -> None:
        self.promise: Promise[None] = Promise()
        self.timer: Timer | None = None
