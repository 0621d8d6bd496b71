"""Offsets that a query commits to a group."""

import pytest
from confluent_kafka import Consumer

from tests.spark.topics import committed, create_topic, delete_topic, eventually
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import OptionError
from tidelog.spark.group_commits import GroupCommits
from tidelog.testing import Broker


def test_offsets_are_there_for_every_tool(tidelog_broker: Broker, topic: str) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 2)
    commits = GroupCommits(bootstrap, "test", topic, 10.0)
    commits.bring_to({TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 0})
    assert committed(bootstrap, topic) == {(topic, 0): 3, (topic, 1): 0}
    commits.bring_to({TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 1})
    assert committed(bootstrap, topic) == {(topic, 0): 4, (topic, 1): 1}


def test_a_deleted_topic_does_not_disturb(tidelog_broker: Broker, topic: str) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 1)
    create_topic(bootstrap, topic + "-gone", 1)
    delete_topic(bootstrap, topic + "-gone")
    commits = GroupCommits(bootstrap, "test", topic, 10.0)
    commits.bring_to({TopicPartition(topic, 0): 3, TopicPartition(topic + "-gone", 0): 9})
    assert committed(bootstrap, topic)[topic, 0] == 3


def test_a_group_with_members_is_refused(tidelog_broker: Broker, topic: str) -> None:
    bootstrap = tidelog_broker.bootstrap_servers
    create_topic(bootstrap, topic, 1)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "a member")
        commits = GroupCommits(bootstrap, "test", topic, 10.0)
        with pytest.raises(OptionError, match=f"groupId='{topic}'.*it has members"):
            commits.bring_to({TopicPartition(topic, 0): 3})
    finally:
        consumer.close()
