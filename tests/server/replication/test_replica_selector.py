"""Which replica a consumer is sent to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.cluster.replication.test_partition import state
from tidelog.cluster.metadata.image import BrokerImage, MetadataImage
from tidelog.cluster.replication.replication_state import ReplicationState
from tidelog.server.replication.replica_selector import RackAwareReplicaSelector, replica_selector

IMAGE = MetadataImage(
    brokers={
        broker_id: BrokerImage(broker_id, 1, b"I" * 16, (), rack=rack, fenced=False)
        for broker_id, rack in ((1, "a"), (2, "b"), (3, "b"), (4, "c"))
    }
)


@pytest.fixture
def partition() -> Any:
    """Led by 1; 3 is further than 2, and 4 is not in sync."""
    replication = ReplicationState(1, 0)
    replication.lead(state(replicas=(1, 2, 3, 4), isr=(1, 2, 3)), 0, 0)
    for broker_id, offset in ((2, 5), (3, 7), (4, 7)):
        replication.follower_fetched(broker_id, offset, 2, 7, 0)
    return SimpleNamespace(node_id=1, state=replication)


@pytest.mark.parametrize(
    ("rack", "offset", "chosen"),
    [
        ("b", 4, 3),  # the one that is furthest
        ("b", 7, 3),
        ("b", 8, None),  # nobody has it
        ("b", 1, None),  # nobody has it any more
        ("a", 4, None),  # the leader is there
        ("c", 4, None),  # not in sync
        ("d", 4, None),
    ],
)
def test_a_follower_in_the_rack_that_has_the_offset(
    partition: Any, rack: str, offset: int, chosen: int | None
) -> None:
    selector = RackAwareReplicaSelector(lambda: IMAGE)
    assert selector.select(rack, partition, offset) == chosen


@pytest.mark.parametrize(
    ("name", "is_rack_aware"),
    [
        (None, False),
        ("LeaderSelector", False),
        ("RackAwareReplicaSelector", True),
        ("org.apache.kafka.common.replica.RackAwareReplicaSelector", True),
    ],
)
def test_selectors_have_names(name: str | None, is_rack_aware: bool) -> None:
    assert (replica_selector(name, lambda: IMAGE) is not None) is is_rack_aware
