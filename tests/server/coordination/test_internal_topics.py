"""Where internal topics are coordinated, with how many replicas they are made, and by whom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.server.coordination.fake_peers import FakeNode
from tidelog.cluster.metadata.image import BrokerImage, MetadataImage
from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.promise import Promise
from tidelog.protocol.apis.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.configuration.node_config import NodeConfig
from tidelog.server.coordination.internal_topics import InternalTopics, partition_for
from tidelog.server.node import Node
from tidelog.server.topic_creation import new_topic


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("zzzzzz", -685785664),
        ("日本", 835047),
    ],
)
def test_a_key_is_coordinated_where_kafka_would(key: str, java_hash: int) -> None:
    absolute = 0 if java_hash == -(2**31) else abs(java_hash)
    for count in (1, 4, 50):
        assert partition_for(key, count) == absolute % count


def made_with(brokers: int, settings: dict[str, str], topic: str) -> tuple[int, str | None]:
    """The replication factor and min.insync.replicas of an internal topic."""
    image = MetadataImage(
        brokers={each: BrokerImage(each, 0, b"", (), fenced=each > brokers) for each in range(1, 9)}
    )
    config = NodeConfig({"log.dirs": "x", **settings})
    made = new_topic(cast(Node, SimpleNamespace(config=config, image=image)), topic)
    configs = {each.name: each.value for each in made.configs}
    return made.replication_factor, configs.get("min.insync.replicas")


def test_internal_topics_have_three_replicas_where_there_are_brokers_for_them() -> None:
    assert made_with(1, {}, CONSUMER_OFFSETS_TOPIC) == (1, None)
    assert made_with(2, {}, CONSUMER_OFFSETS_TOPIC) == (2, None)
    assert made_with(5, {}, CONSUMER_OFFSETS_TOPIC) == (3, None)
    assert made_with(1, {}, TRANSACTION_STATE_TOPIC) == (1, "1")
    assert made_with(2, {}, TRANSACTION_STATE_TOPIC) == (2, "2")
    assert made_with(5, {}, TRANSACTION_STATE_TOPIC) == (3, "2")


def test_internal_topics_have_what_is_set() -> None:
    offsets = {"offsets.topic.replication.factor": "2"}
    assert made_with(1, offsets, CONSUMER_OFFSETS_TOPIC) == (2, None)
    assert made_with(5, offsets, CONSUMER_OFFSETS_TOPIC) == (2, None)
    transactions = {
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "3",
    }
    assert made_with(1, transactions, TRANSACTION_STATE_TOPIC) == (3, "3")


class Asking(FakeNode):
    """A node whose controller answers when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.config = NodeConfig({"log.dirs": "x"})  # type: ignore[assignment]
        self.controller = self
        self.asked: list[Promise[CreateTopicsResponse]] = []
        self.topics = InternalTopics(self.node)

    def ask(self, request: CreateTopicsRequest) -> Promise[CreateTopicsResponse]:
        self.asked.append(Promise())
        return self.asked[-1]

    def said(self, code: ErrorCode) -> None:
        row = CreatableTopicResult(
            name=CONSUMER_OFFSETS_TOPIC, error_code=code, error_message="the reason"
        )
        self.asked[-1].resolve(CreateTopicsResponse(topics=[row]))


def test_the_controller_is_asked_once_and_the_metadata_is_waited_for() -> None:
    node = Asking()
    waiting = [node.topics.ensure(CONSUMER_OFFSETS_TOPIC) for _ in range(3)]
    assert len(node.asked) == 1
    # Another node was faster: the topic is there, and this node has not heard of it yet.
    node.said(ErrorCode.TOPIC_ALREADY_EXISTS)
    node.pass_time(1)
    assert not any(each.is_done for each in waiting)
    node.lead(CONSUMER_OFFSETS_TOPIC, 2)
    node.pass_time(1)
    assert [each.error for each in waiting] == [None] * 3
    assert node.topics.ensure(CONSUMER_OFFSETS_TOPIC).is_done
    assert len(node.asked) == 1


def test_metadata_that_does_not_come_is_not_waited_for_any_longer() -> None:
    node = Asking()
    waiting = node.topics.ensure(CONSUMER_OFFSETS_TOPIC)
    node.said(ErrorCode.NONE)
    for _ in range(60):
        node.pass_time(0.1)
    assert cast(ApiError, waiting.error).code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_the_controller_refuses_may_be_asked_for_again() -> None:
    node = Asking()
    waiting = node.topics.ensure(CONSUMER_OFFSETS_TOPIC)
    node.said(ErrorCode.INVALID_REPLICATION_FACTOR)
    with pytest.raises(ApiError, match="the reason"):
        waiting.result()
    node.topics.ensure(CONSUMER_OFFSETS_TOPIC)
    assert len(node.asked) == 2
