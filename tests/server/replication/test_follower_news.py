"""Sessions of followers: what has news is looked at, and nothing else."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest

from tests.server.batches import produce
from tests.server.replication.running_cluster import RunningCluster, eventually
from tidelog.byte_throttle import ByteThrottle
from tidelog.cluster.replication.partition import Partition
from tidelog.cluster.replication.replication_throttle import ReplicationThrottle
from tidelog.cluster.replication.waiting import Waiting
from tidelog.protocol.fetch import FetchData, FetchPartition
from tidelog.server.fetch_sessions import FetchSessions
from tidelog.server.replication.follower_news import FollowerNews

TOPIC_ID = b"T" * 16


def test_idle_partitions_cost_nothing(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("orders", [[1, 2]] * 40)
    read = Partition.read
    reads: list[int] = []

    def count(self: Partition, *arguments: Any, **options: Any) -> Any:
        if self.topic == "orders":
            reads.append(self.partition)
        return read(self, *arguments, **options)

    with cluster[1].client() as client:
        produce(client, "orders", b"a", partition=7)
        eventually(lambda: cluster.partition(2, "orders", 7).high_watermark == 1)
        time.sleep(0.3)
        monkeypatch.setattr(Partition, "read", count)
        time.sleep(0.5)  # several rounds of 100 ms
        assert reads == []
        produce(client, "orders", b"b", partition=9)
        eventually(lambda: cluster.partition(2, "orders", 9).high_watermark == 1)
        assert set(reads) == {9}


def open_session(sessions: FetchSessions, replica_id: int, partitions: list[int]) -> Any:
    data = FetchData((replica_id, 0, 1, 1000, 0, 0, 0), [], [], "")
    data.topics = [(TOPIC_ID, [FetchPartition(each, -1, 0, -1, 0, 1000) for each in partitions])]
    return sessions.open(data, True, 0)


def make_sessions(slots: int) -> FetchSessions:
    waiting = Waiting(lambda: 0.0, lambda seconds, callback: None, lambda: None)
    throttle = ReplicationThrottle(
        ByteThrottle(11, 1000, lambda: 0, lambda seconds, callback: None)
    )
    return FetchSessions(
        slots, 120_000, Random(1), lambda replica_id: FollowerNews(waiting, throttle, replica_id)
    )


def test_a_new_session_of_a_follower_takes_the_place_of_its_last_one() -> None:
    """It has forgotten that one, which would go on to watch its partitions."""
    sessions = make_sessions(10)
    open_session(sessions, 2, [0, 1])
    open_session(sessions, 3, [0, 1])
    open_session(sessions, 2, [5])
    assert len(sessions) == 3
    open_session(sessions, 2, [1, 2])
    assert len(sessions) == 3


def test_followers_get_a_session_before_consumers() -> None:
    sessions = make_sessions(2)
    assert open_session(sessions, -1, [0, 1, 2]).session is not None
    assert open_session(sessions, 2, [0]).session is not None
    assert open_session(sessions, -1, [0, 1, 2, 3]).session is None, "the other is in use"
    assert open_session(sessions, 3, [0]).session is not None
    assert open_session(sessions, 4, [0]).session is None, "followers do not displace each other"
