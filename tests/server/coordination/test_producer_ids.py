"""Blocks of producer ids, asked for once however many wait."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from tidelog.promise import Promise
from tidelog.protocol.apis.allocate_producer_ids import AllocateProducerIdsResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.coordination.producer_ids import ProducerIds
from tidelog.server.node import Node


class Controller:
    """Answers when a test says so."""

    def __init__(self) -> None:
        self.asked: list[Promise[AllocateProducerIdsResponse]] = []

    def ask(self, _: object) -> Promise[AllocateProducerIdsResponse]:
        self.asked.append(Promise())
        return self.asked[-1]

    def give(self, first: int, count: int) -> None:
        self.asked[-1].resolve(
            AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=count)
        )


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def ids(controller: Controller) -> ProducerIds:
    def call_soon(callback: Callable[[], None]) -> None:
        callback()

    node = SimpleNamespace(
        config=SimpleNamespace(node_id=1),
        broker_epoch=5,
        controller=controller,
        reactor=SimpleNamespace(call_soon=call_soon),
    )
    return ProducerIds(cast(Node, node))


def test_all_that_wait_share_one_block(ids: ProducerIds, controller: Controller) -> None:
    with pytest.raises(ApiError, match="on their way"):
        ids.take()
    taken: list[int] = []
    for _ in range(3):
        ids.ensure().when_done(lambda _: taken.append(ids.take()))
    assert len(controller.asked) == 1
    controller.give(1000, 500)
    assert taken == [1000, 1001, 1002]
    assert ids.ensure().is_done
    assert len(controller.asked) == 1


def test_all_that_wait_hear_of_a_failure_and_may_ask_again(
    ids: ProducerIds, controller: Controller
) -> None:
    waiting = [ids.ensure(), ids.ensure()]
    asked_again: list[Promise[None]] = []
    waiting[0].when_done(lambda _: asked_again.append(ids.ensure()))
    controller.asked[0].fail(ApiError(ErrorCode.NOT_CONTROLLER))
    assert [cast(ApiError, each.error).code for each in waiting] == [ErrorCode.NOT_CONTROLLER] * 2
    controller.give(7, 500)
    assert asked_again[0].is_done
    assert ids.take() == 7


def test_the_next_block_is_asked_for_before_the_last_id_is_taken(
    ids: ProducerIds, controller: Controller
) -> None:
    ids.ensure()
    controller.give(0, 101)
    ids.take()
    assert len(controller.asked) == 1
    ids.take()
    ids.take()
    assert len(controller.asked) == 2
    controller.give(500, 101)
    assert [ids.take() for _ in range(99)] == [*range(3, 101), 500]


def test_a_refusal_in_the_answer_is_told(ids: ProducerIds, controller: Controller) -> None:
    waiting = ids.ensure()
    controller.asked[0].resolve(
        AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    )
    assert cast(ApiError, waiting.error).code is ErrorCode.STALE_BROKER_EPOCH
    ids.ensure()
    controller.give(0, 500)
    assert ids.take() == 0


def test_ids_that_were_given_before_are_refused(ids: ProducerIds, controller: Controller) -> None:
    ids.ensure()
    controller.give(1000, 1)
    assert ids.take() == 1000
    waiting = ids.ensure()
    controller.give(1000, 500)
    with pytest.raises(ApiError, match="behind 1000"):
        waiting.result()
