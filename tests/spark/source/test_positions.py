"""Positions become offsets, with and without a lake."""

import pytest

from tests.spark.topics import create_topic, publish
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import OptionError
from tidelog.spark.offsets import AtOffsets, AtTimestamp, AtTimestamps, Everywhere
from tidelog.spark.source.lake_lookup import LakeLookup
from tidelog.spark.source.options import parse_source_options
from tidelog.spark.source.positions import Asked, Extent, find_positions, first_of_both, offsets_at
from tidelog.spark.source.subscribed_topics import SubscribedTopics
from tidelog.testing import Broker

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
EXTENT = Extent({A: 10, B: 0}, {A: 20, B: 5})


def test_words_stand_for_the_ends() -> None:
    assert offsets_at(Asked("starting", Everywhere(-2), False), EXTENT, {}) == EXTENT.earliest
    assert offsets_at(Asked("ending", Everywhere(-1), True), EXTENT, {}) == EXTENT.latest
    mixed = AtOffsets({A: -1, B: -2})
    assert offsets_at(Asked("starting", mixed, False), EXTENT, {}) == {A: 20, B: 0}


def test_offsets_beyond_what_there_is_are_told() -> None:
    nearest, losses = EXTENT.within({A: 3, B: 9}, "start")
    assert nearest == {A: 10, B: 5}
    assert losses == [
        "t-0 has offsets from 10 to 20, not the start 3",
        "t-1 has offsets from 0 to 5, not the start 9",
    ]
    assert EXTENT.within({A: 10, B: 5}, "start") == ({A: 10, B: 5}, [])


def test_no_record_as_new_is_an_error_or_the_end() -> None:
    at = AtTimestamp(5)
    assert offsets_at(Asked("ending", at, True), EXTENT, {A: 12, B: -1}) == {A: 12, B: 5}
    with pytest.raises(OptionError, match="startingTimestamp: t-1 has no record that new"):
        offsets_at(Asked("starting", at, False), EXTENT, {A: 12, B: -1})


def test_of_lake_and_broker_the_first_counts() -> None:
    assert first_of_both({A: 12, B: -1}, {}) == {A: 12, B: -1}
    assert first_of_both({A: 12, B: -1}, {A: 3, B: 4}) == {A: 3, B: 4}
    assert first_of_both({A: 2}, {A: 3}) == {A: 2}


def test_positions_of_a_topic(tidelog_broker: Broker, topic: str) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 2)
    for partition in range(2):
        publish(bootstrap, topic, ["x"] * 5, partition=partition, timestamp_ms=lambda at: 1000 + at)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    options = parse_source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    extent, found = find_positions(
        SubscribedTopics(options),
        LakeLookup(None),
        {first, second},
        Asked("starting", AtTimestamp(1002), False),
        Asked("ending", AtTimestamps({first: 1004, second: 9999}), True),
        Asked("ending", Everywhere(-1), True),
    )
    assert extent == Extent({first: 0, second: 0}, {first: 5, second: 5})
    assert found == [{first: 2, second: 2}, {first: 4, second: 5}, {first: 5, second: 5}]


def test_each_partition_must_be_named(tidelog_broker: Broker, topic: str) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 2)
    options = parse_source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    topics = SubscribedTopics(options)
    given = AtOffsets({TopicPartition(topic, 0): 1, TopicPartition(topic, 5): 1})
    with pytest.raises(OptionError, match="startingOffsets must name") as raised:
        find_positions(
            topics, LakeLookup(None), topics.partitions(), Asked("starting", given, False)
        )
    assert f"lacks {topic}-1, and names {topic}-5" in str(raised.value)
