"""Before records are appended in a transaction, its coordinator has to know of the partition.

Otherwise nobody would ever end the transaction there: a hanging transaction, and readers of
committed records would hang at it. Producers of transactions v2 add partitions by writing to them;
older ones have said so before, and here it is verified. The coordinator may be on this node or on
another.

A producer's requests follow each other closely and its records are numbered, so what comes after a
request that waits for the coordinator waits behind it.

What was verified holds until the append only if the transaction has not ended meanwhile. With
transactions v2 the partition's log tells, for the marker has raised the epoch. Before, epochs stay,
so a marker that comes while the coordinator is asked, or another leader in between, undoes the
verification.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinator.shard import CoordinatorResult
from tidelog.coordinator.transaction_shard import TransactionShard
from tidelog.promise import Promise
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.coordination.remote_verification import RemoteVerification

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import MetadataDelta
    from tidelog.server.coordination.transaction_coordinator import TransactionCoordinator
    from tidelog.server.node import Node

Errors = dict[TopicPartition, ErrorCode]

# Answers of the coordinator that no producer expects from a partition: it retries under this name.
_RETRIABLE_AS = ErrorCode.NOT_ENOUGH_REPLICAS
_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        # Another partition of the request is not known to the coordinator yet.
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
# How often and how long another node is asked again while the previous transaction completes,
# which is a matter of milliseconds, before the client is told to.
_ASK_AGAIN_S = 0.02
_ASK_AGAIN_S_MAX = 1.0


@dataclass(slots=True, eq=False)
class _Verification:
    """`leader_epochs` are those of the partitions that are asked for, `ended` those of them in
    which the producer's transaction has ended meanwhile."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: list[TopicPartition]
    implicit_add: bool
    knows_abortable: bool
    errors: Promise[Errors]
    leader_epochs: dict[TopicPartition, int] = field(default_factory=dict)
    ended: set[TopicPartition] = field(default_factory=set)


class TransactionalAppends:
    """What the produce and the offset path ask before they write in a transaction."""

    def __init__(self, node: Node, coordinator: TransactionCoordinator) -> None:
        self._node = node
        self._coordinator = coordinator
        self._remote = RemoteVerification(node, coordinator.node_of)
        # By producer: the call that waits for the coordinator, and those behind it.
        self._asking: dict[int, tuple[_Verification, deque[_Verification]]] = {}

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        implicit_add: bool,
        *,
        knows_abortable: bool = False,
    ) -> Promise[Errors]:
        """The errors of the partitions that must not be written to.

        They are known at once for partitions in which the transaction is open already, which is
        nearly always; else when the coordinator has answered. `knows_abortable`: the client knows
        the error TRANSACTION_ABORTABLE.
        """
        call = _Verification(
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
            implicit_add,
            knows_abortable,
            Promise(),
        )
        asking = self._asking.get(producer_id)
        if asking is None:
            self._begin(call)
        else:
            asking[1].append(call)
        return call.errors

    def transaction_ended(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int
    ) -> None:
        """To be called when a marker was appended to a partition."""
        asking = self._asking.get(producer_id)
        if asking is None:
            return
        call = asking[0]
        # By a higher epoch the log itself tells what is late.
        if producer_epoch == call.producer_epoch and partition in call.leader_epochs:
            call.ended.add(partition)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        if delta.changed_topics or delta.deleted_topics or delta.brokers:
            self._remote.metadata_changed()

    def close(self) -> None:
        self._remote.close()

    def _begin(self, call: _Verification) -> None:
        producer_id = call.producer_id
        elsewhere: Errors = {}
        unknown: list[TopicPartition] = []
        for partition in call.partitions:
            hosted = self._node.partitions.get(*partition)
            if hosted is None or not hosted.is_leader:
                # Nothing would be written here, so nothing is to be added.
                elsewhere[partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif not hosted.log.producers.has_ongoing_transaction(producer_id, call.producer_epoch):
                unknown.append(partition)
                call.leader_epochs[partition] = hosted.leader_epoch
        if not unknown:
            call.errors.resolve(elsewhere)
            return
        self._asking[producer_id] = call, deque()

        def finish(answered: Promise[Errors]) -> None:
            if answered.error is None:
                call.errors.resolve({**answered.result(), **self._undone(call), **elsewhere})
            else:
                call.errors.settle_like(answered)
            self._go_on(producer_id)

        self._ask(call, unknown).when_done(finish)

    def _undone(self, call: _Verification) -> Errors:
        """What was verified and does not hold any more."""
        if call.implicit_add:
            return {}
        undone = dict.fromkeys(call.ended, ErrorCode.INVALID_TXN_STATE)
        for partition, leader_epoch in call.leader_epochs.items():
            hosted = self._node.partitions.get(*partition)
            if hosted is None or not hosted.is_leader or hosted.leader_epoch != leader_epoch:
                undone[partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return undone

    def _go_on(self, producer_id: int) -> None:
        """A producer's call is over: those behind it go on, up to the next that has to wait."""
        _, queue = self._asking.pop(producer_id)
        while queue:
            self._begin(queue.popleft())
            asking = self._asking.get(producer_id)
            if asking is not None:
                asking[1].extend(queue)
                return

    # The coordinator

    def _ask(self, call: _Verification, partitions: list[TopicPartition]) -> Promise[Errors]:
        if (
            not call.implicit_add
            and not self._node.config.transaction_partition_verification_enable
        ):
            return Promise.of({})
        coordinator = self._coordinator.node_of(call.transactional_id)
        if coordinator is None:
            codes = Promise.of(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif coordinator != self._node.config.node_id:
            codes = self._ask_node(coordinator, call, partitions)
        elif call.implicit_add:
            codes = self._add_here(call, partitions)
        else:
            codes = self._verify_here(call, partitions)
        return codes.then(partial(_errors, call))

    def _add_here(self, call: _Verification, partitions: list[TopicPartition]) -> Promise[Errors]:
        added = self._coordinator.add_partitions(
            call.transactional_id, call.producer_id, call.producer_epoch, partitions, 2
        )
        return added.recover(ApiError, lambda error: error.code).then(
            lambda code: dict.fromkeys(partitions, code)
        )

    def _verify_here(
        self, call: _Verification, partitions: list[TopicPartition]
    ) -> Promise[Errors]:
        def verify(shard: TransactionShard, _now_ms: int) -> CoordinatorResult[Errors]:
            return shard.verify_partitions(
                call.transactional_id, call.producer_id, call.producer_epoch, partitions
            )

        return self._coordinator.submit(call.transactional_id, verify).recover(
            ApiError, lambda error: dict.fromkeys(partitions, error.code)
        )

    def _ask_node(
        self, coordinator: int, call: _Verification, partitions: list[TopicPartition]
    ) -> Promise[Errors]:
        codes: Promise[Errors] = Promise()
        give_up_at = self._node.world.monotonic() + _ASK_AGAIN_S_MAX
        self._ask_until(give_up_at, codes, coordinator, call, partitions)
        return codes

    def _ask_until(
        self,
        give_up_at: float,
        codes: Promise[Errors],
        coordinator: int,
        call: _Verification,
        partitions: list[TopicPartition],
    ) -> None:
        """Asks again while the previous transaction completes, as long as there is time."""

        def answered(answer: Promise[Errors]) -> None:
            if (
                call.implicit_add
                and ErrorCode.CONCURRENT_TRANSACTIONS in answer.result().values()
                and self._node.world.monotonic() < give_up_at
            ):
                again = partial(self._ask_until, give_up_at, codes, coordinator, call, partitions)
                self._node.reactor.call_later(_ASK_AGAIN_S, again)
            else:
                codes.settle_like(answer)

        self._remote.ask(
            coordinator,
            call.transactional_id,
            call.producer_id,
            call.producer_epoch,
            partitions,
            verify_only=not call.implicit_add,
        ).when_done(answered)


def _errors(call: _Verification, codes: Errors) -> Errors:
    """What the coordinator says, in the words of the produce path."""
    return {partition: _translated(call, code) for partition, code in codes.items() if code}


def _translated(call: _Verification, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not call.knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and not call.implicit_add:
        return _RETRIABLE_AS  # the old flow does not know it here
    return _RETRIABLE_AS if code in _RETRIABLE else code
