"""What the driver asks a real broker."""

import threading
import time

import pytest
from confluent_kafka import Producer

from tests.spark.topics import create_topic, delete_topic, eventually, publish
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import OptionError, SparkError
from tidelog.spark.offsets import EARLIEST, LATEST
from tidelog.spark.source.options import parse_source_options
from tidelog.spark.source.subscribed_topics import SubscribedTopics
from tidelog.testing import Broker
from tidelog.testing.broker import free_port


def topics_for(bootstrap: str, **options: str) -> SubscribedTopics:
    return SubscribedTopics(parse_source_options({"kafka.bootstrap.servers": bootstrap, **options}))


def test_partitions_by_name_pattern_and_assignment(tidelog_broker: Broker, topic: str) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 2)
    create_topic(bootstrap, topic + "-b", 1)
    first, second, other = (
        TopicPartition(topic, 0),
        TopicPartition(topic, 1),
        TopicPartition(topic + "-b", 0),
    )
    assert topics_for(bootstrap, subscribe=topic).partitions() == {first, second}
    assert topics_for(bootstrap, subscribe=f"{topic},{topic}-b").partitions() == {
        first,
        second,
        other,
    }
    assert topics_for(bootstrap, subscribePattern=topic + ".+").partitions() == {other}
    assert topics_for(bootstrap, assign=f'{{"{topic}": [1]}}').partitions() == {second}


def test_internal_topics_match_no_pattern(tidelog_broker: Broker, topic: str) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 1)
    found = topics_for(bootstrap, subscribePattern=".*").partitions()
    assert TopicPartition(topic, 0) in found
    assert not any(name.topic.startswith("__") for name in found)


def test_topics_and_partitions_that_do_not_exist_are_named(
    tidelog_broker: Broker, topic: str
) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    with pytest.raises(OptionError, match=f"option subscribe: there is no {topic} at"):
        topics_for(bootstrap, subscribe=topic).partitions()
    create_topic(bootstrap, topic, 1)
    with pytest.raises(OptionError, match=f"option assign: there is no {topic}-7 at"):
        topics_for(bootstrap, assign=f'{{"{topic}": [0, 7]}}').partitions()
    with pytest.raises(OptionError, match="no name of a topic"):
        topics_for(bootstrap, subscribe="no topic!").partitions()


def test_offsets_of_many_kinds_in_one_question(tidelog_broker: Broker, topic: str) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 2)
    publish(bootstrap, topic, ["x"] * 10, timestamp_ms=lambda at: 1000 * (at + 1))
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    gone = TopicPartition(topic, 9)
    calls = topics_for(bootstrap, subscribe=topic)
    earliest, latest, by_time = calls.list_offsets(
        {first: EARLIEST, second: EARLIEST, gone: EARLIEST},
        {first: LATEST, second: LATEST},
        {first: 4500, second: 4500},
    )
    assert earliest == {first: 0, second: 0}
    assert latest == {first: 10, second: 0}
    assert by_time == {first: 4, second: -1}
    assert calls.latest() == latest
    assert calls.earliest([second]) == {second: 0}


def test_the_end_of_committed_reading_is_the_last_stable_offset(
    tidelog_broker: Broker, topic: str
) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 1)
    publish(bootstrap, topic, ["before"])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    name = TopicPartition(topic, 0)
    uncommitted = {"kafka.isolation.level": "read_uncommitted"}
    assert topics_for(bootstrap, subscribe=topic).latest() == {name: 1}
    assert topics_for(bootstrap, subscribe=topic, **uncommitted).latest() == {name: 2}
    producer.commit_transaction(30)
    committed = topics_for(bootstrap, subscribe=topic)
    eventually(lambda: committed.latest() == {name: 3}, "the marker")


def test_deleted_topics_are_left_out(tidelog_broker: Broker, topic: str) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 1)
    calls = topics_for(bootstrap, subscribe=topic)
    assert calls.latest() == {TopicPartition(topic, 0): 0}
    delete_topic(bootstrap, topic)
    assert calls.latest() == {}


def test_a_list_of_partitions_can_be_believed_for_a_while(
    tidelog_broker: Broker, topic: str
) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 1)
    believing = topics_for(
        bootstrap, subscribePattern=topic + ".*", **{"partition.metadata.cache.ttl.ms": "600000"}
    )
    assert len(believing.partitions()) == 1
    create_topic(bootstrap, topic + "-b", 1)
    assert len(believing.partitions()) == 1
    assert len(topics_for(bootstrap, subscribePattern=topic + ".*").partitions()) == 2


def test_a_broker_that_comes_back_is_waited_for(topic: str) -> None:
    broker = Broker(mode="process", port=free_port())
    with broker:
        bootstrap = broker.bootstrap_servers
        create_topic(bootstrap, topic, 1)
        publish(bootstrap, topic, ["x"])
        calls = topics_for(bootstrap, subscribe=topic)
        assert calls.latest() == {TopicPartition(topic, 0): 1}
        broker.stop()
        again = threading.Timer(1.0, broker.start)
        again.start()
        try:
            assert calls.latest() == {TopicPartition(topic, 0): 1}
        finally:
            again.join()


def test_a_broker_that_stays_away_is_an_error() -> None:
    calls = topics_for(
        f"127.0.0.1:{free_port()}", subscribe="a", **{"kafka.default.api.timeout.ms": "300"}
    )
    start_s = time.monotonic()
    with pytest.raises(SparkError, match=r"within 0\.3 s \(kafka\.default\.api\.timeout\.ms\)"):
        calls.latest()
    assert time.monotonic() - start_s < 30
