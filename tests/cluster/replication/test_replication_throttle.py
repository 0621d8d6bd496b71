"""Which replicas are throttled, and which of them are held back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.replication.replicas import NOW, Replicas
from tests.cluster.replication.test_partition import append
from tidelog.byte_throttle import ByteThrottle
from tidelog.cluster.metadata.image import PartitionImage
from tidelog.cluster.replication.partition import Partition
from tidelog.cluster.replication.replication_throttle import ReplicationThrottle
from tidelog.cluster.settings.topic_config import throttled_partitions, validate_topic_config
from tidelog.protocol.errors import ApiError

RATE = "leader.replication.throttled.replicas"


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    replicas = Replicas(tmp_path, (1, 2, 3))
    yield replicas
    replicas.close()


@pytest.fixture
def leader(replicas: Replicas) -> Partition:
    """orders-0 on node 1, which leads; 2 is in sync and 3 is not."""
    partition = replicas[1].partition
    image = PartitionImage(0, 1, 0, 0, (1, 2, 3), (1, 2))
    partition.lead(image, NOW)
    append(partition)
    return partition


@pytest.fixture
def throttle() -> ReplicationThrottle:
    """One above its limit."""
    throttle = ReplicationThrottle(
        ByteThrottle(11, 1000, lambda: 0, lambda seconds, callback: None)
    )
    throttle.bytes.set_limit(1)
    throttle.bytes.record(2)
    return throttle


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        (None, frozenset()),
        ("", frozenset()),
        ("*", None),
        (" * ", None),
        ("0:1,1:2,3:1", {0, 3}),
        (" 0:1 , 5:1", {0, 5}),
        ("0:12", frozenset()),
    ],
)
def test_replicas_are_named_by_partition_and_broker(
    text: str | None, partitions: frozenset[int] | None
) -> None:
    validate_topic_config({RATE: text or ""})
    assert throttled_partitions(text, 1) == partitions


@pytest.mark.parametrize("text", ["0", "0:", ":1", "a:1", "0:1:2", "*,0:1", "²:1", "-1:1"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ApiError, match=RATE):
        validate_topic_config({RATE: text})


def test_a_topic_is_throttled_until_it_is_not(
    throttle: ReplicationThrottle, leader: Partition
) -> None:
    assert not throttle.is_active
    for partitions, is_throttled in ((None, True), (frozenset({0, 7}), True), ({7}, False)):
        throttle.choose("orders", None if partitions is None else frozenset(partitions))
        assert throttle.is_active
        assert throttle.throttles(leader) is is_throttled
    throttle.choose("other", None)
    throttle.choose("orders", frozenset())
    assert throttle.is_active
    assert not throttle.throttles(leader)
    throttle.choose("other", frozenset())
    throttle.choose("never named", frozenset())
    assert not throttle.is_active


def test_only_what_is_throttled_counts(throttle: ReplicationThrottle, leader: Partition) -> None:
    throttle.bytes.set_limit(100)
    throttle.record(leader, 1000)
    assert not throttle.bytes.is_exceeded
    throttle.choose("orders", None)
    throttle.record(leader, 1000)
    assert throttle.bytes.is_exceeded


def test_a_follower_is_held_back_when_it_is_throttled_not_in_sync_and_above_the_limit(
    throttle: ReplicationThrottle, leader: Partition
) -> None:
    assert not throttle.holds_back_follower(leader, 3), "it is not throttled"
    throttle.choose("orders", None)
    assert throttle.holds_back_follower(leader, 3)
    assert not throttle.holds_back_follower(leader, 2), "it is in sync"
    throttle.bytes.set_limit(2)
    assert not throttle.holds_back_follower(leader, 3), "it is within the limit"


def test_a_follower_that_the_high_watermark_waits_for_is_not_held_back(
    throttle: ReplicationThrottle, leader: Partition
) -> None:
    """Producers would wait for it too: it is about to join the in-sync set."""
    throttle.choose("orders", None)
    leader.record_follower_fetch(3, 1, 0, NOW)
    leader.note_joining(NOW, 30_000, lambda follower: True)
    append(leader)
    assert leader.state.awaits(3)
    assert not throttle.holds_back_follower(leader, 3)
    leader.note_joining(NOW + 30_001, 30_000, lambda follower: True)
    assert throttle.holds_back_follower(leader, 3), "it has not come for too long"


def test_whoever_waits_looks_again_when_other_replicas_are_throttled(replicas: Replicas) -> None:
    throttle = replicas[2].throttle
    throttle.bytes.set_limit(1)
    throttle.choose("orders", None)
    throttle.bytes.record(10**6)
    looked: list[float] = []
    throttle.bytes.when_open(lambda: looked.append(replicas.now))
    throttle.choose("orders", None)
    replicas.run(10)
    assert looked == [11.0], "nothing has changed before"
    throttle.bytes.record(10**6)
    throttle.bytes.when_open(lambda: looked.append(replicas.now))
    throttle.choose("orders", frozenset())
    replicas.step()
    assert looked == [11.0, 11.0]
