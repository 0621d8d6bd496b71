"""CreatePartitions: topics grow, and the answer names each of them."""

from collections.abc import Callable

import pytest

from tests.server.handlers.admin_calls import create_topic, describe_topic, produce
from tidelog.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_and_takes_records(wire: WireClient, new_name: NewName, version: int) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=3, assignments=None)]
    )
    (row,) = wire.call(request, version).results
    assert (row.name, row.error_code) == (topic, 0)
    assert len(describe_topic(wire, topic).partitions) == 3
    assert produce(wire, topic, 1, partition=2) == 0


def test_validation_only_adds_nothing(wire: WireClient, new_name: NewName) -> None:
    topic = new_name("topic")
    create_topic(wire, topic)
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=3, assignments=None)], validate_only=True
    )
    assert wire.call(request, 3).results[0].error_code == 0
    assert len(describe_topic(wire, topic).partitions) == 1


def test_wrong_additions_are_refused_row_by_row(wire: WireClient, new_name: NewName) -> None:
    smaller, wrong_broker, too_few, twice = (new_name("topic") for _ in range(4))
    missing = new_name("missing")
    for topic in (smaller, wrong_broker, too_few, twice):
        create_topic(wire, topic, partitions=2)

    def grown(name: str, count: int, *brokers: list[int]) -> CreatePartitionsTopic:
        assignments = [CreatePartitionsAssignment(broker_ids=each) for each in brokers]
        return CreatePartitionsTopic(name=name, count=count, assignments=assignments or None)

    request = CreatePartitionsRequest(
        topics=[
            grown(smaller, 1),
            grown(wrong_broker, 3, [9]),
            grown(too_few, 4, [1]),
            grown(twice, 3),
            grown(twice, 4),
            grown(missing, 3),
        ]
    )
    rows = {row.name: row.error_code for row in wire.call(request, 3).results}
    assert rows == {
        smaller: ErrorCode.INVALID_PARTITIONS,
        wrong_broker: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        too_few: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        twice: ErrorCode.INVALID_REQUEST,
        missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
