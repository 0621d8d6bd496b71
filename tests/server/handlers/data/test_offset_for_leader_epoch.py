"""OffsetForLeaderEpoch: where an epoch ended."""

from collections.abc import Callable

import pytest

from tests.server.handlers.admin_calls import create_topic, produce
from tidelog.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import WireClient

NewName = Callable[[str], str]


def ask(
    wire: WireClient,
    topic: str,
    epoch: int,
    *,
    current: int = -1,
    partition: int = 0,
    version: int = 4,
) -> EpochEndOffset:
    request = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=partition, current_leader_epoch=current, leader_epoch=epoch
                    )
                ],
            )
        ],
    )
    row: EpochEndOffset = wire.call(request, version).topics[0].partitions[0]
    assert row.partition == partition
    return row


@pytest.fixture
def topic(wire: WireClient, new_name: NewName) -> str:
    name = new_name("topic")
    create_topic(wire, name)
    produce(wire, name, 1, 2)
    return name


@pytest.mark.parametrize("version", range(2, 5))
def test_the_present_epoch_ends_at_the_end_of_the_log(
    wire: WireClient, topic: str, version: int
) -> None:
    row = ask(wire, topic, 0, current=0, version=version)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, 0, 2)


def test_an_epoch_of_the_future_has_no_end(wire: WireClient, topic: str) -> None:
    row = ask(wire, topic, 9)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, -1, -1)


def test_the_callers_view_of_the_leader_is_checked(wire: WireClient, topic: str) -> None:
    assert ask(wire, topic, 0, current=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_missing_partition_is_told(wire: WireClient, topic: str) -> None:
    row = ask(wire, topic, 0, partition=5)
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
