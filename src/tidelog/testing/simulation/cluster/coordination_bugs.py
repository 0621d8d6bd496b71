"""Deliberate mistakes in the coordinators of groups and transactions, and around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from tidelog.cluster.metadata.image import MetadataImage
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.coordinator.group_shard import GroupShard
from tidelog.coordinator.shard import CoordinatorResult, Reply
from tidelog.coordinator.transaction_shard import TransactionShard
from tidelog.promise import Promise
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.record_batch import iterate_headers
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.coordination.shard_host import HostedShard, ShardHost
from tidelog.server.coordination.transaction_markers import TransactionMarkers
from tidelog.server.coordination.transactional_appends import TransactionalAppends
from tidelog.storage.producer_state.producer_state import ProducerState
from tidelog.testing.simulation.planting import Plantation, replaced

COORDINATION_BUGS = Plantation()


# Shards


@COORDINATION_BUGS.plant
def answer_before_the_state_is_committed() -> Iterator[None]:
    """A coordinator answers when it has written its records, before they are replicated."""

    def deliver(self: HostedShard[Any], replies: list[Reply], effects: list[Any]) -> None:
        self._deliver(replies, effects)

    with replaced(HostedShard, "_when_committed", deliver):
        yield


@COORDINATION_BUGS.plant
def serve_a_partition_that_has_moved() -> Iterator[None]:
    """A coordinator goes on to answer when another node leads its partition."""
    refresh = ShardHost.refresh

    def keep(self: ShardHost[Any], image: MetadataImage, *arguments: Any) -> None:
        hosted = dict(self._hosted)
        self._hosted = {}
        refresh(self, image, *arguments)
        self._hosted = {**self._hosted, **hosted}

    with (
        replaced(ShardHost, "refresh", keep),
        replaced(ShardHost, "lost", lambda self, hosted: None),
    ):
        yield


@COORDINATION_BUGS.plant
def serve_a_partition_before_it_is_loaded() -> Iterator[None]:
    """A coordinator answers while it still reads the state of its partition."""
    take_over = ShardHost._take_over

    def at_once(self: ShardHost[Any], partition: Any) -> None:
        take_over(self, partition)
        hosted = self._hosted[partition.partition]
        self._to_load.remove(hosted)
        hosted.loaded()

    with replaced(ShardHost, "_take_over", at_once):
        yield


@COORDINATION_BUGS.plant
def load_transactions_without_the_last_batch() -> Iterator[None]:
    """A coordinator of transactions that takes over does not read the end of its log."""
    with replaced(HostedShard, "_load_batches", _without_last_batch(TRANSACTION_STATE_TOPIC)):
        yield


@COORDINATION_BUGS.plant
def load_groups_without_the_last_batch() -> Iterator[None]:
    """A coordinator of groups that takes over does not read the end of its log."""
    with replaced(HostedShard, "_load_batches", _without_last_batch(CONSUMER_OFFSETS_TOPIC)):
        yield


def _without_last_batch(topic: str) -> Any:
    load = HostedShard._load_batches

    def load_less(self: HostedShard[Any], data: bytes) -> None:
        if self.partition.topic == topic:
            ends = [
                at
                for at, header in iterate_headers(memoryview(data))
                if header.next_offset >= self.partition.log_end_offset
            ]
            data = data[: ends[0]] if ends else data
        load(self, data)

    return load_less


# Transactions


@COORDINATION_BUGS.plant
def forget_markers_at_takeover() -> Iterator[None]:
    """A new coordinator does not finish the transactions that the one before had decided."""

    def nothing(self: TransactionShard, now_ms: int) -> list[CoordinatorResult[Any]]:
        return []

    with replaced(TransactionShard, "loaded", nothing):
        yield


@COORDINATION_BUGS.plant
def take_markers_as_written_that_nobody_answers() -> Iterator[None]:
    """A marker counts as written when the connection breaks over which it was sent."""
    answered = TransactionMarkers._answered

    def believe(
        self: TransactionMarkers,
        writing: Any,
        partition: TopicPartition,
        code: ErrorCode,
        node_id: int | None = None,
    ) -> None:
        known = ErrorCode.NONE if code is ErrorCode.NETWORK_EXCEPTION else code
        answered(self, writing, partition, known, node_id)

    with replaced(TransactionMarkers, "_answered", believe):
        yield


@COORDINATION_BUGS.plant
def write_markers_before_the_decision_is_committed() -> Iterator[None]:
    """The markers of a transaction are sent when its end is written, before it is replicated."""
    when_committed = HostedShard._when_committed

    def hasty(self: HostedShard[Any], replies: list[Reply], effects: list[Any]) -> None:
        self._deliver([], effects)
        when_committed(self, replies, [])

    with replaced(HostedShard, "_when_committed", hasty):
        yield


@COORDINATION_BUGS.plant
def take_markers_of_deposed_coordinators() -> Iterator[None]:
    """A marker is written though another coordinator has written there since."""
    check = ProducerState.check_marker

    def lenient(
        self: ProducerState, epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        newest = max(coordinator_epoch, self.coordinator_epoch)
        check(self, epoch, newest, transaction_version)

    with replaced(ProducerState, "check_marker", lenient):
        yield


@COORDINATION_BUGS.plant
def append_without_asking_the_coordinator() -> Iterator[None]:
    """Records are written to partitions of which the transaction's coordinator does not know."""

    def nothing_wrong(self: TransactionalAppends, call: Any, partitions: Any) -> Promise[Any]:
        return Promise.of({})

    with replaced(TransactionalAppends, "_ask", nothing_wrong):
        yield


@COORDINATION_BUGS.plant
def forget_partitions_of_a_transaction() -> Iterator[None]:
    """The last partition that joined a transaction is not part of it."""
    add = TransactionShard.add_partitions

    def add_less(
        self: TransactionShard,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *arguments: Any,
        **options: Any,
    ) -> CoordinatorResult[ErrorCode]:
        known = sorted(partitions)
        fewer = known[:-1] or known
        return add(
            self, transactional_id, producer_id, producer_epoch, fewer, *arguments, **options
        )

    with replaced(TransactionShard, "add_partitions", add_less):
        yield


@COORDINATION_BUGS.plant
def let_zombies_go_on() -> Iterator[None]:
    """A producer that begins again does not fence the one before it with its transactional id."""
    reinitialize = TransactionShard._reinitialize

    def same_epoch(self: TransactionShard, current: Any, *arguments: Any) -> Any:
        lower = replace(current, producer_epoch=max(current.producer_epoch - 1, -1))
        return reinitialize(self, lower, *arguments)

    with replaced(TransactionShard, "_reinitialize", same_epoch):
        yield


# Groups


@COORDINATION_BUGS.plant
def forget_offsets_of_transactions() -> Iterator[None]:
    """Offsets that a transaction has committed are not those of the group."""

    def nothing(self: GroupShard, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.committed.replay_end_marker(producer_id, False)

    with replaced(GroupShard, "replay_end_marker", nothing):
        yield


@COORDINATION_BUGS.plant
def forget_ends_of_transactions_at_takeover() -> Iterator[None]:
    """A new coordinator of groups leaves offsets pending whose transaction has ended."""
    load = HostedShard._load_batches

    def load_without_markers(self: HostedShard[Any], data: bytes) -> None:
        view = memoryview(data)
        kept = [
            view[at : at + header.size_bytes]
            for at, header in iterate_headers(view)
            if not header.is_control
        ]
        load(self, b"".join(kept))

    with replaced(HostedShard, "_load_batches", load_without_markers):
        yield
