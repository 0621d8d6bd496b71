"""In-sync sets: who is proposed, what goes along, and what each answer of the controller means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cluster.replication.replicas import EventLines
from tests.cluster.replication.test_partition import TOPIC_ID, ManualSink, append, state
from tidelog.cluster.metadata.image import BrokerImage, MetadataImage
from tidelog.cluster.replication.partition import Partition
from tidelog.cluster.replication.partition_registry import PartitionRegistry
from tidelog.cluster.replication.waiting import Waiting
from tidelog.promise import Promise
from tidelog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.replication.in_sync_sets import InSyncSets
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_loading import open_log
from tidelog.testing.inline_world import InlineWorld

LAG_MS = 1000


class Timers:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[tuple[float, Any]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        timer = SimpleNamespace(callback=callback)
        timer.cancel = lambda: setattr(timer, "callback", lambda: None)
        self.due.append((self.now + seconds, timer))
        return timer

    def pass_s(self, seconds: float) -> None:
        end = self.now + seconds
        while any(at <= end for at, _ in self.due):
            place = min(range(len(self.due)), key=lambda index: self.due[index][0])
            at, timer = self.due.pop(place)
            self.now = max(self.now, at)
            timer.callback()
        self.now = end


def broker(broker_id: int, epoch: int, **more: Any) -> BrokerImage:
    return BrokerImage(broker_id, epoch, b"I" * 16, (), fenced=False)._replace(**more)


class Leader:
    """Node 1 leads orders-0 with the followers 2 and 3; the test is the controller."""

    def __init__(self, directory: Path) -> None:
        self.timers = Timers()
        self.asked: list[tuple[AlterPartitionRequest, Promise[AlterPartitionResponse]]] = []
        log = open_log(
            directory / "orders-0",
            TopicPartition("orders", 0),
            LogConfig(),
            world=InlineWorld(now_ms=1),
            topic_id=TOPIC_ID,
            sink=ManualSink(),
        )
        waiting = Waiting(lambda: self.timers.now, self.timers.call_later, lambda: None)
        self.partition = Partition("orders", 0, TOPIC_ID, 1, log, waiting)
        partitions = PartitionRegistry()
        partitions.add(self.partition)
        self.node: Any = SimpleNamespace(
            config=SimpleNamespace(node_id=1, replica_lag_time_max_ms=LAG_MS),
            image=MetadataImage(brokers={each: broker(each, each * 10) for each in (1, 2, 3)}),
            broker_epoch=10,
            partitions=partitions,
            waiting=waiting,
            reactor=SimpleNamespace(call_later=self.timers.call_later),
            world=SimpleNamespace(monotonic=lambda: self.timers.now),
            controller=SimpleNamespace(ask=self._ask),
            log=EventLines(),
        )
        node: Any = self.node
        self.sets = InSyncSets(node)
        self.sets.start()

    def _ask(self, request: AlterPartitionRequest, timeout_s: float) -> Promise[Any]:
        answer: Promise[AlterPartitionResponse] = Promise()
        self.asked.append((request, answer))
        return answer

    def lead(self, isr: tuple[int, ...], partition_epoch: int = 0) -> None:
        image = state(partition_epoch=partition_epoch, replicas=(1, 2, 3), isr=isr)
        self.partition.lead(image, int(self.timers.now * 1000))

    def fetched(self, replica_id: int, offset: int, epoch: int | None = None) -> None:
        epoch = replica_id * 10 if epoch is None else epoch
        now_ms = int(self.timers.now * 1000)
        self.sets.follower_fetched(self.partition, replica_id, epoch, offset, 0, now_ms)

    def proposed(self) -> list[dict[int, int]]:
        """The in-sync sets that were asked for, each with its broker epochs."""
        self.timers.pass_s(0.001)
        return [
            {each.broker_id: each.broker_epoch for each in row.new_isr_with_epochs}
            for request, _ in self.asked
            for topic in request.topics
            for row in topic.partitions
        ]

    def answer(self, code: ErrorCode = ErrorCode.NONE, partition_epoch: int = 1) -> None:
        _, answer = self.asked[-1]
        row = AlterPartitionResponsePartition(
            partition_index=0, error_code=code, partition_epoch=partition_epoch
        )
        topic = AlterPartitionResponseTopic(topic_id=TOPIC_ID, partitions=[row])
        answer.resolve(AlterPartitionResponse(topics=[topic]))


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    leader = Leader(tmp_path)
    yield leader
    leader.sets.close()
    leader.partition.log.close()


def test_a_follower_that_has_caught_up_is_proposed_with_its_broker_epoch(leader: Leader) -> None:
    leader.lead(isr=(1, 3))
    append(leader.partition)
    leader.fetched(2, 1)
    assert leader.proposed() == [{1: 10, 3: -1, 2: 20}]
    (request, _) = leader.asked[0]
    assert (request.broker_id, request.broker_epoch) == (1, 10)


@pytest.mark.parametrize(
    "registered",
    [
        broker(2, 20, fenced=True),
        broker(2, 20, in_controlled_shutdown=True),
        broker(2, 19),
    ],
)
def test_a_follower_that_the_controller_would_refuse_is_not_proposed(
    leader: Leader, registered: BrokerImage
) -> None:
    leader.lead(isr=(1,))
    leader.node.image = MetadataImage(brokers={2: registered})
    leader.fetched(2, 0)
    assert leader.proposed() == []


def test_an_idle_follower_that_was_fenced_when_it_fetched_joins_when_it_is_not(
    leader: Leader,
) -> None:
    whole = leader.node.image
    leader.lead(isr=(1, 3))
    leader.node.image = MetadataImage(brokers={**whole.brokers, 2: broker(2, 20, fenced=True)})
    leader.fetched(2, 0)
    leader.sets.broker_changed(2)
    assert leader.proposed() == []
    leader.node.image = whole
    leader.sets.broker_changed(2)
    assert leader.proposed() == [{1: 10, 3: -1, 2: 20}]


def test_an_idle_follower_that_came_while_another_was_proposed_joins_later(
    leader: Leader,
) -> None:
    leader.lead(isr=(1,))
    leader.fetched(2, 0)
    leader.fetched(3, 0)
    assert leader.proposed() == [{1: 10, 2: 20}]
    leader.answer()
    leader.lead(isr=(1, 2), partition_epoch=1)
    leader.timers.pass_s(0.6)
    assert leader.proposed()[1:] == [{1: 10, 2: 20, 3: 30}]


def test_a_follower_that_stopped_fetching_is_not_taken_back_by_the_timer(leader: Leader) -> None:
    """It has all that is committed, for nothing is while too few are in sync, and would be taken
    out again for its lag."""
    leader.lead(isr=(1, 2, 3))
    append(leader.partition)
    leader.timers.pass_s(1.6)
    assert leader.proposed() == [{1: 10}]
    leader.answer()
    leader.lead(isr=(1,), partition_epoch=1)
    state = leader.partition.state
    state.high_watermark = 0
    for follower in state.followers.values():
        follower.log_end_offset = 0
    leader.timers.pass_s(5)
    assert leader.proposed()[1:] == []


def test_a_fetch_of_an_earlier_life_says_nothing(leader: Leader) -> None:
    leader.lead(isr=(1,))
    with pytest.raises(ApiError) as caught:
        leader.fetched(2, 0, epoch=19)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.partition.state.followers[2].log_end_offset == -1


def test_followers_that_lag_are_taken_out(leader: Leader) -> None:
    leader.lead(isr=(1, 2, 3))
    append(leader.partition)
    leader.fetched(2, 1)
    leader.timers.pass_s(1.6)
    assert leader.proposed() == [{1: 10, 2: 20}]


def test_proposals_of_a_turn_go_together_and_one_request_is_in_flight(leader: Leader) -> None:
    leader.lead(isr=(1,))
    leader.fetched(2, 0)
    assert len(leader.proposed()) == 1
    leader.fetched(3, 0)
    assert len(leader.proposed()) == 1, "the first is not answered"
    leader.answer()
    leader.lead(isr=(1, 2), partition_epoch=1)
    leader.fetched(3, 0)
    assert leader.proposed()[1] == {1: 10, 2: 20, 3: 30}


def test_a_proposal_counts_until_the_metadata_brings_its_answer(leader: Leader) -> None:
    leader.lead(isr=(1,))
    append(leader.partition)
    leader.fetched(2, 1)
    leader.proposed()
    leader.answer()
    append(leader.partition)
    leader.partition.log.mark_durable(2)
    assert leader.partition.high_watermark == 1, "the controller has taken the follower in"
    leader.lead(isr=(1, 2), partition_epoch=1)
    leader.fetched(2, 2)
    assert leader.partition.high_watermark == 2


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refusal_takes_the_proposal_back(leader: Leader, code: ErrorCode) -> None:
    leader.lead(isr=(1,))
    leader.fetched(2, 0)
    leader.proposed()
    leader.answer(code)
    assert not leader.partition.state.has_proposal
    leader.fetched(2, 0)
    assert len(leader.proposed()) == 2


def test_an_answer_that_changes_nothing_ends_the_proposal(leader: Leader) -> None:
    leader.lead(isr=(1,))
    leader.fetched(2, 0)
    leader.proposed()
    leader.answer(partition_epoch=0)
    assert not leader.partition.state.has_proposal


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.INVALID_REQUEST,
    ],
)
def test_what_the_metadata_will_tell_is_waited_for(leader: Leader, code: ErrorCode) -> None:
    leader.lead(isr=(1,))
    leader.fetched(2, 0)
    leader.proposed()
    leader.answer(code)
    leader.timers.pass_s(0.3)
    assert len(leader.asked) == 1
    assert leader.partition.state.has_proposal


def test_what_nobody_knows_is_asked_again_with_the_same_epochs(leader: Leader) -> None:
    leader.lead(isr=(1,))
    leader.fetched(2, 0)
    leader.proposed()
    leader.asked[-1][1].fail(ApiError(ErrorCode.REQUEST_TIMED_OUT))
    # The follower restarts meanwhile, perhaps without its log.
    leader.node.image = MetadataImage(brokers={2: broker(2, 21)})
    leader.fetched(2, 0, epoch=21)
    leader.timers.pass_s(0.1)
    assert leader.proposed() == [{1: 10, 2: 20}] * 2
    leader.answer(ErrorCode.NOT_CONTROLLER)
    leader.timers.pass_s(0.1)
    assert len(leader.asked) == 3
    leader.lead(isr=(1,), partition_epoch=1)
    leader.answer(ErrorCode.NOT_CONTROLLER)
    leader.timers.pass_s(0.1)
    assert len(leader.asked) == 3, "the metadata has overtaken it"
