"""What a transaction leaves behind on the node when it is over."""

from __future__ import annotations

import gc
from collections import Counter

from confluent_kafka import Producer

from tests.server.running_node import RunningNode
from tidelog.coordinator.transaction_shard import WriteMarkers
from tidelog.server.request import Request


def test_transactions_that_are_over_need_no_garbage_collection(served: RunningNode) -> None:
    """The collector would hold the loop to find what they left."""
    served.create_topic("cycles")
    producer = Producer(
        {"bootstrap.servers": f"{served.host}:{served.port}", "transactional.id": "cycles"}
    )
    producer.init_transactions(30)
    rounds = 30
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            producer.begin_transaction()
            producer.produce("cycles", b"x")
            producer.commit_transaction(30)
        alive = [each for each in gc.get_objects() if isinstance(each, WriteMarkers | Request)]
        assert len(alive) < rounds / 2, Counter(type(each) for each in alive)
    finally:
        gc.enable()
