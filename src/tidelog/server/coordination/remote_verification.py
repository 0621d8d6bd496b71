"""Asking the transaction coordinators of other nodes whether partitions are in a transaction.

The questions to one node go out together as one AddPartitionsToTxn, and while it is under way those
that come wait for the next. Each is answered exactly once: by the coordinator, by a failed
connection or a timeout, or at once when the metadata names another coordinator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.promise import Promise, settle_all
from tidelog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.network.peer_connection import PeerVersionError
from tidelog.server.network.peers import Purpose, UnknownNodeError

if TYPE_CHECKING:
    from tidelog.protocol.schema import Message
    from tidelog.server.network.peer_connection import PeerError
    from tidelog.server.node import Node

Codes = dict[TopicPartition, ErrorCode]

_CALL_TIMEOUT_S = 10.0
QUESTIONS_PER_REQUEST_MAX = 500
QUESTIONS_QUEUED_MAX = 10_000
_NOT_REACHED = ErrorCode.NETWORK_EXCEPTION


class _Question:
    __slots__ = ("codes", "partitions", "transaction")

    def __init__(
        self, transaction: AddPartitionsToTxnTransaction, partitions: list[TopicPartition]
    ) -> None:
        self.transaction = transaction
        self.partitions = partitions
        self.codes: Promise[Codes] = Promise()

    def answer(self, code: ErrorCode) -> None:
        """The same for all partitions, unless it was answered before."""
        if not self.codes.is_done:
            self.codes.resolve(dict.fromkeys(self.partitions, code))

    def read(self, result: AddPartitionsToTxnResult | None) -> None:
        """Take over what the coordinator said of each partition; None if it said nothing."""
        if self.codes.is_done:
            return
        topics = () if result is None else result.topic_results
        said = {
            TopicPartition(topic.name, row.partition_index): ErrorCode(row.partition_error_code)
            for topic in topics
            for row in topic.results_by_partition
        }
        self.codes.resolve({each: said.get(each, _NOT_REACHED) for each in self.partitions})


class _Coordinator:
    """What one other node is asked. At most one request is under way: `asked`."""

    __slots__ = ("asked", "queued")

    def __init__(self) -> None:
        self.queued: deque[_Question] = deque()
        self.asked: list[_Question] | None = None

    def take(self) -> list[_Question]:
        """The next request's questions: answers are told apart by the transactional id, so each
        has only one of it."""
        taken: dict[str, _Question] = {}
        later: list[_Question] = []
        while self.queued and len(taken) < QUESTIONS_PER_REQUEST_MAX:
            question = self.queued.popleft()
            if question.codes.is_done:
                continue
            if question.transaction.transactional_id in taken:
                later.append(question)
            else:
                taken[question.transaction.transactional_id] = question
        self.queued.extendleft(reversed(later))
        return list(taken.values())


class RemoteVerification:
    """`coordinator_of(transactional id)` is the node that coordinates it, None for nobody."""

    def __init__(self, node: Node, coordinator_of: Callable[[str], int | None]) -> None:
        self._node = node
        self._coordinator_of = coordinator_of
        self._coordinators: dict[int, _Coordinator] = {}
        self._is_closed = False

    def ask(
        self,
        node_id: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        *,
        verify_only: bool,
    ) -> Promise[Codes]:
        """What the coordinator on that node says of each partition. NETWORK_EXCEPTION when it could
        not be asked; then nobody knows whether partitions were added."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        question = _Question(
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=verify_only,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in topics.items()
                ],
            ),
            partitions,
        )
        coordinator = self._coordinators.setdefault(node_id, _Coordinator())
        if self._is_closed or len(coordinator.queued) >= QUESTIONS_QUEUED_MAX:
            question.answer(_NOT_REACHED)
        else:
            coordinator.queued.append(question)
            self._send(node_id, coordinator)
        return question.codes

    def metadata_changed(self) -> None:
        """Who waits for a node that is not the coordinator any more is told to ask again."""
        # Whoever is told may ask another node at once.
        for node_id, coordinator in list(self._coordinators.items()):
            waiting = [*(coordinator.asked or ()), *coordinator.queued]
            moved = [
                question
                for question in waiting
                if self._coordinator_of(question.transaction.transactional_id) != node_id
            ]
            _answer_all(moved, ErrorCode.NOT_COORDINATOR)

    def close(self) -> None:
        self._is_closed = True
        for coordinator in list(self._coordinators.values()):
            _answer_all([*(coordinator.asked or ()), *coordinator.queued], _NOT_REACHED)
            coordinator.queued.clear()

    def _send(self, node_id: int, coordinator: _Coordinator) -> None:
        if coordinator.asked is not None:
            return
        asked = coordinator.take()
        if not asked:
            return
        try:
            peer = self._node.peers.to(node_id, Purpose.VERIFICATION)
        except UnknownNodeError:
            _answer_all([*asked, *coordinator.queued], ErrorCode.COORDINATOR_NOT_AVAILABLE)
            coordinator.queued.clear()
            return
        coordinator.asked = asked

        def done(response: Message | None, error: PeerError | None) -> None:
            coordinator.asked = None
            try:
                if error is not None:
                    self._unanswered(node_id, asked, error)
                else:
                    assert isinstance(response, AddPartitionsToTxnResponse)
                    _answered(asked, response)
            finally:
                if not self._is_closed:
                    self._send(node_id, coordinator)

        peer.call(
            AddPartitionsToTxnRequest(transactions=[each.transaction for each in asked]),
            done,
            timeout_s=_CALL_TIMEOUT_S,
        )

    def _unanswered(self, node_id: int, asked: list[_Question], error: PeerError) -> None:
        self._node.log.debug("verification_failed", node=node_id, error=error)
        if isinstance(error, PeerVersionError):
            # A broker that does not know the request keeps its producers' word for it, as before
            # there was verification; what was to be added cannot be.
            verified = [each for each in asked if each.transaction.verify_only]
            _answer_all(verified, ErrorCode.NONE)
        _answer_all(asked, _NOT_REACHED)


def _answer_all(questions: list[_Question], code: ErrorCode) -> None:
    settle_all(partial(each.answer, code) for each in questions)


def _answered(asked: list[_Question], response: AddPartitionsToTxnResponse) -> None:
    if response.error_code:
        code = ErrorCode(response.error_code)
        # A client is not to hear that this node may not ask.
        if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            code = ErrorCode.INVALID_TXN_STATE
        _answer_all(asked, code)
        return
    results = {row.transactional_id: row for row in response.results_by_transaction}
    settle_all(partial(each.read, results.get(each.transaction.transactional_id)) for each in asked)
