"""Questions to the transaction coordinators of other nodes."""

from __future__ import annotations

from typing import cast

import pytest

from tests.server.coordination.fake_peers import FakeNode
from tidelog.promise import Promise
from tidelog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.coordination import remote_verification
from tidelog.server.coordination.remote_verification import Codes, RemoteVerification
from tidelog.server.network.peer_connection import PeerTimeout, PeerVersionError

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]


class Asking:
    def __init__(self) -> None:
        self.node = FakeNode()
        self.coordinators: dict[str, int] = {}
        self.remote = RemoteVerification(
            self.node.node, lambda name: self.coordinators.get(name, 2)
        )

    def ask(self, name: str, *, verify_only: bool = True) -> Promise[Codes]:
        return self.remote.ask(2, name, 10, 0, PARTITIONS, verify_only=verify_only)

    def asked(self) -> list[str]:
        """The transactional ids of the oldest request."""
        request = cast(AddPartitionsToTxnRequest, self.node.calls[0].message)
        return [each.transactional_id for each in request.transactions]

    def reply(self, *codes: ErrorCode) -> None:
        """Answer the oldest request: these codes for the partitions of each transaction."""
        request = cast(AddPartitionsToTxnRequest, self.node.calls[0].message)
        self.node.answer(
            AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(
                        transactional_id=each.transactional_id,
                        topic_results=[
                            AddPartitionsToTxnTopicResult(
                                name="t",
                                results_by_partition=[
                                    AddPartitionsToTxnPartitionResult(
                                        partition_index=index, partition_error_code=code
                                    )
                                    for index, code in enumerate(codes)
                                ],
                            )
                        ],
                    )
                    for each in reversed(request.transactions)
                ]
            )
        )


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_questions_that_come_meanwhile_go_out_together(asking: Asking) -> None:
    answers = [asking.ask(name) for name in ("a", "b", "c", "b")]
    assert asking.asked() == ["a"]
    assert len(asking.node.calls) == 1
    asking.reply(ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)
    assert answers[0].result() == {
        PARTITIONS[0]: ErrorCode.NONE,
        PARTITIONS[1]: ErrorCode.TRANSACTION_ABORTABLE,
    }
    # Answers are told apart by the id, so the second question about b waits.
    assert asking.asked() == ["b", "c"]
    asking.reply(ErrorCode.NONE, ErrorCode.NONE)
    assert asking.asked() == ["b"]
    asking.reply(ErrorCode.NONE, ErrorCode.NONE)
    assert all(each.is_done for each in answers)
    assert not asking.node.calls


def test_a_request_has_a_limit(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_verification, "QUESTIONS_PER_REQUEST_MAX", 2)
    monkeypatch.setattr(remote_verification, "QUESTIONS_QUEUED_MAX", 3)
    answers = [asking.ask(name) for name in "abcdef"]
    assert [each.is_done for each in answers] == [False] * 4 + [True] * 2
    assert set(answers[5].result().values()) == {ErrorCode.NETWORK_EXCEPTION}
    asking.reply(ErrorCode.NONE, ErrorCode.NONE)
    assert asking.asked() == ["b", "c"]
    asking.reply(ErrorCode.NONE, ErrorCode.NONE)
    assert asking.asked() == ["d"]


def test_a_node_that_does_not_answer_leaves_it_open(asking: Asking) -> None:
    answers = [asking.ask("a"), asking.ask("b")]
    asking.node.answer(error=PeerTimeout("slow"))
    assert set(answers[0].result().values()) == {ErrorCode.NETWORK_EXCEPTION}
    assert asking.asked() == ["b"]


def test_a_node_that_cannot_verify_is_not_asked_to(asking: Asking) -> None:
    first = asking.ask("first")
    verified, added = asking.ask("a"), asking.ask("b", verify_only=False)
    asking.reply(ErrorCode.NONE, ErrorCode.NONE)
    assert first.is_done
    asking.node.answer(error=PeerVersionError("old"))
    assert set(verified.result().values()) == {ErrorCode.NONE}
    assert set(added.result().values()) == {ErrorCode.NETWORK_EXCEPTION}


def test_an_error_for_all_is_everybodys(asking: Asking) -> None:
    for said, told in (
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        answer = asking.ask("a")
        asking.node.answer(AddPartitionsToTxnResponse(error_code=said))
        assert set(answer.result().values()) == {told}


def test_who_waits_for_a_coordinator_that_has_moved_is_told_once(asking: Asking) -> None:
    moved, stays, queued = asking.ask("a"), asking.ask("b"), asking.ask("c")
    asking.coordinators.update(a=3, c=3)
    asking.remote.metadata_changed()
    assert set(moved.result().values()) == {ErrorCode.NOT_COORDINATOR}
    assert set(queued.result().values()) == {ErrorCode.NOT_COORDINATOR}
    assert not stays.is_done
    asking.reply(ErrorCode.NONE, ErrorCode.NONE)  # too late for the first, and harmless
    assert asking.asked() == ["b"]


def test_a_node_without_an_address_cannot_be_asked(asking: Asking) -> None:
    asking.node.unknown.add(2)
    answer = asking.ask("a")
    assert set(answer.result().values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_the_end_of_the_node_answers_everybody(asking: Asking) -> None:
    answers = [asking.ask("a"), asking.ask("b")]
    asking.remote.close()
    answers.append(asking.ask("c"))
    assert [set(each.result().values()) for each in answers] == [{ErrorCode.NETWORK_EXCEPTION}] * 3
    asking.reply(ErrorCode.NONE, ErrorCode.NONE)
    assert not asking.node.calls
