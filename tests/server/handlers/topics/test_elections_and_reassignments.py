"""ElectLeaders and partition reassignments on a cluster of one."""

from collections.abc import Callable

import pytest

from tests.server.handlers.admin_calls import create_topic
from tidelog.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]


@pytest.mark.parametrize("version", range(3))
def test_leaders_that_lead_need_no_election(
    wire: WireClient, new_name: NewName, version: int
) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    request = ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic=topic, partitions=[0, 5])]
    )
    response = wire.call(request, version)
    assert response.error_code == 0
    (result,) = response.replica_election_results
    assert result.topic == topic
    assert {row.partition_id: row.error_code for row in result.partition_result} == {
        0: ErrorCode.ELECTION_NOT_NEEDED,
        5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_an_election_for_all_tells_only_what_changed(wire: WireClient) -> None:
    response = wire.call(ElectLeadersRequest(topic_partitions=None), 2)
    assert (response.error_code, response.replica_election_results) == (0, [])


def test_an_unknown_kind_of_election_is_refused(wire: WireClient) -> None:
    request = ElectLeadersRequest(
        election_type=7, topic_partitions=[TopicPartitions(topic="t", partitions=[0])]
    )
    response = wire.call(request, 2)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_nothing_moves_on_one_node(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    asked = [ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0, 1])]
    for topics in (None, asked):
        response = wire.call(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (response.error_code, response.topics) == (0, [])


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ([1], ErrorCode.NONE),
        ([9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_moves_are_checked(
    wire: WireClient, new_name: NewName, replicas: list[int] | None, expected: ErrorCode
) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[ReassignablePartition(partition_index=0, replicas=replicas)],
            )
        ]
    )
    response = wire.call(request, 1)
    assert response.error_code == 0
    (answered,) = response.responses
    assert answered.name == topic
    assert (answered.partitions[0].partition_index, answered.partitions[0].error_code) == (
        0,
        expected,
    )
