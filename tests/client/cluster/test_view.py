"""What a view takes over, and what it does not."""

from __future__ import annotations

import pytest

from tidelog.client.cluster import Address, ClusterView
from tidelog.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.protocol.uuids import ZERO_UUID

ONE, OTHER = b"1" * 16, b"2" * 16
NAME = TopicPartition("orders", 0)


def metadata(leader_id: int, leader_epoch: int, topic_id: bytes = ONE) -> MetadataResponse:
    row = MetadataResponsePartition(
        partition_index=0, leader_id=leader_id, leader_epoch=leader_epoch
    )
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="h", port=node) for node in (1, 2)],
        topics=[MetadataResponseTopic(name="orders", topic_id=topic_id, partitions=[row])],
    )


@pytest.mark.parametrize(
    ("told", "leader_id"),
    [
        (metadata(2, 6), 2),
        (metadata(2, 5), 2),
        # A broker that lags behind.
        (metadata(2, 4), 1),
        # The topic was deleted and created again.
        (metadata(2, 0, OTHER), 2),
    ],
)
def test_a_leader_of_an_older_epoch_is_not_believed(told: MetadataResponse, leader_id: int) -> None:
    view = ClusterView()
    view.learn(metadata(1, 5))
    view.learn(told)
    assert view.leaders[NAME].node_id == leader_id


def test_topics_without_ids_are_believed() -> None:
    view = ClusterView()
    view.learn(metadata(1, 5, ZERO_UUID))
    view.learn(metadata(2, 4, ZERO_UUID))
    assert view.leaders[NAME].node_id == 2


def test_a_partition_that_lost_its_leader_has_none() -> None:
    view = ClusterView()
    view.learn(metadata(1, 5))
    view.learn(metadata(-1, 6))
    assert NAME not in view.leaders


def test_a_broker_that_is_away_takes_along_only_what_it_led() -> None:
    view = ClusterView()
    view.learn(metadata(1, 5))
    view.invalidate_broker(Address("h", 2))
    assert NAME in view.leaders
    view.invalidate_broker(Address("h", 1))
    assert NAME not in view.leaders
