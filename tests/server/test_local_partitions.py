"""Topics with many partitions come and go while the node serves others."""

from __future__ import annotations

import select
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.server.batches import produce
from tests.server.running_node import RunningNode
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.local_partitions import LOGS_MADE_PER_TURN_MAX
from tidelog.storage.log import Log

_MANY = 5 * LOGS_MADE_PER_TURN_MAX + 3


def _creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=_MANY, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def _deletion(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)


class _Creations:
    """Notes in which turn of the loop each log is made; `meanwhile` happens with the first."""

    def __init__(self, served: RunningNode, meanwhile: Callable[[], object] | None = None) -> None:
        node = served.node
        self.per_turn: Counter[int] = Counter()
        self._create = node.store.create
        self._reactor = node.reactor
        self._meanwhile = meanwhile
        served.call(lambda: setattr(node.store, "create", self._note))

    def _note(self, topic_partition: TopicPartition, *arguments: Any) -> Log:
        if self._meanwhile is not None and not self.per_turn:
            self._meanwhile()
        self.per_turn[self._reactor.turns] += 1
        return self._create(topic_partition, *arguments)


def test_other_clients_are_answered_while_many_partitions_are_made(served: RunningNode) -> None:
    with served.client() as admin, served.client() as other:
        other.call(ApiVersionsRequest(), 0)
        creations = _Creations(served, lambda: other.send(ApiVersionsRequest(), 0))
        admin.send(_creation("many"), 7)
        answered_first = select.select([admin.socket, other.socket], [], [], 30)[0]
        assert other.socket in answered_first
        _, response = admin.receive()
        assert [row.error_code for row in response.topics] == [0]
        assert creations.per_turn.total() == _MANY
        assert max(creations.per_turn.values()) <= LOGS_MADE_PER_TURN_MAX
        # With the answer all of them are there.
        for partition in range(_MANY):
            assert produce(admin, "many", b"x", partition=partition) == 0
        other.receive()


def test_partitions_that_are_added_come_in_turns_too(served: RunningNode) -> None:
    served.create_topic("grows", 2)
    creations = _Creations(served)
    with served.client() as admin:
        wanted = CreatePartitionsTopic(name="grows", count=_MANY, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000)
        (row,) = admin.call(request, 3).results
        assert row.error_code == 0
        assert produce(admin, "grows", b"x", partition=_MANY - 1) == 0
    assert creations.per_turn.total() == _MANY - 2
    assert max(creations.per_turn.values()) <= LOGS_MADE_PER_TURN_MAX


def test_a_topic_can_be_deleted_while_its_partitions_are_made(served: RunningNode) -> None:
    with served.client() as admin, served.client() as other:
        other.call(ApiVersionsRequest(), 0)
        creations = _Creations(served, lambda: other.send(_deletion("brief"), 6))
        admin.send(_creation("brief"), 7)
        _, deleted = other.receive()
        assert [row.error_code for row in deleted.responses] == [0]
        _, created = admin.receive()
        assert [row.error_code for row in created.topics] == [0]
        assert creations.per_turn.total() < _MANY
        assert served.call(lambda: len(served.node.partitions)) == 0
        assert served.call(lambda: served.node.store.logs) == {}
        # Its name is free for another one.
        admin.call(_creation("brief"), 7)
        assert produce(admin, "brief", b"x", partition=_MANY - 1) == 0


def test_what_was_not_made_before_a_stop_is_made_at_the_next_start(served: RunningNode) -> None:
    node = served.node
    with served.client() as admin:
        node.local_partitions._call_later = lambda seconds, work: None
        admin.send(_creation("cut"), 7)
        _wait_for_partitions(served, LOGS_MADE_PER_TURN_MAX)
        served.stop()
    again = RunningNode(served.data)
    try:
        assert again.call(lambda: len(again.node.partitions)) == _MANY
        with again.client() as client:
            assert produce(client, "cut", b"x", partition=_MANY - 1) == 0
    finally:
        again.stop()


def _wait_for_partitions(served: RunningNode, count: int) -> None:
    deadline = time.monotonic() + 30
    while served.call(lambda: len(served.node.partitions)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)
