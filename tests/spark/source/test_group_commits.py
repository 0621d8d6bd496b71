"""Offsets that a query commits to a group."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from tests.client.cluster.scripted_broker import Answer, ScriptedBroker
from tests.spark.topics import committed, create_topic, delete_topic, eventually
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import OptionError
from tidelog.spark.source import group_commits
from tidelog.spark.source.group_commits import GroupCommits
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


class _Coordinator:
    """Coordinates every group, and counts what it is asked."""

    def __init__(self) -> None:
        self.finding = ErrorCode.NONE
        self.committing = ErrorCode.NONE
        self.asked: list[str] = []
        self.port = 0

    def find(self, _: FindCoordinatorRequest) -> FindCoordinatorResponse:
        self.asked.append("find")
        return FindCoordinatorResponse(error_code=self.finding, host="127.0.0.1", port=self.port)

    def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        self.asked.append("commit")
        rows = [
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=self.committing
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(topics=rows)


@pytest.fixture
def coordinator() -> Iterator[_Coordinator]:
    made = _Coordinator()
    answers: dict[ApiKey, Answer] = {
        ApiKey.FIND_COORDINATOR: made.find,
        ApiKey.OFFSET_COMMIT: made.commit,
    }
    versions = {ApiKey.FIND_COORDINATOR: (0, 3), ApiKey.OFFSET_COMMIT: (2, 8)}
    with ScriptedBroker(answers, versions) as broker:
        made.port = broker.port
        yield made


def commits_to(coordinator: _Coordinator) -> GroupCommits:
    return GroupCommits(f"127.0.0.1:{coordinator.port}", "test", "group", 10.0)


def test_a_group_that_may_not_be_used_is_refused_at_once(coordinator: _Coordinator) -> None:
    coordinator.finding = ErrorCode.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(OptionError, match=r"groupId='group'.*GROUP_AUTHORIZATION_FAILED"):
        commits_to(coordinator).bring_to({TopicPartition("t", 0): 1})
    assert coordinator.asked == ["find"]


def test_a_group_that_refuses_later_does_not_hold_up_the_query(coordinator: _Coordinator) -> None:
    commits = commits_to(coordinator)
    commits.bring_to({TopicPartition("t", 0): 1})
    coordinator.committing = ErrorCode.GROUP_AUTHORIZATION_FAILED
    coordinator.asked.clear()
    for offset in range(2, 10):
        commits.bring_to({TopicPartition("t", 0): offset})
    assert coordinator.asked == ["commit"]


def test_a_query_that_stands_still_keeps_its_offsets(
    coordinator: _Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = commits_to(coordinator)
    for _ in range(3):
        commits.bring_to({TopicPartition("t", 0): 1})
    assert coordinator.asked.count("commit") == 1
    # Brokers forget what is not committed again, and with it the lag.
    monkeypatch.setattr(group_commits, "_REFRESH_S", 0.0)
    commits.bring_to({TopicPartition("t", 0): 1})
    assert coordinator.asked.count("commit") == 2
