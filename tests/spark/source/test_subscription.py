"""Which partitions a query reads."""

import pytest

from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import OptionError
from tidelog.spark.source.subscription import parse_subscription

EXISTING = [TopicPartition(topic, at) for topic in ("orders", "orders-late", "x") for at in (0, 1)]


def test_topics_by_name() -> None:
    chosen = parse_subscription({"subscribe": " orders , x,"}).chosen(EXISTING)
    assert {each.topic for each in chosen} == {"orders", "x"}


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("orders", {"orders", "orders-late"}),
        ("late", {"orders-late"}),
        ("^orders$", {"orders"}),
        ("orders.*|x", {"orders", "orders-late", "x"}),
    ],
)
def test_topics_by_pattern(pattern: str, topics: set[str]) -> None:
    chosen = parse_subscription({"subscribepattern": pattern}).chosen(EXISTING)
    assert {each.topic for each in chosen} == topics


def test_partitions_by_name() -> None:
    chosen = parse_subscription({"assign": '{"orders": [1], "x": [0]}'}).chosen(EXISTING)
    assert chosen == {TopicPartition("orders", 1), TopicPartition("x", 0)}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "none is given"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": " "}, "subscribe is empty"),
        ({"subscribepattern": "("}, "no pattern"),
        ({"assign": "orders"}, "option assign"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        parse_subscription(options)
