"""What is left of transactions when the broker is killed."""

from __future__ import annotations

from tests.compatibility.transaction_calls import (
    TransactionalProducer,
    committed_values,
    wait_until_stable,
)
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.describe_transactions import DescribeTransactionsRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.testing.wire import WireClient

TOPIC = "orders"


def connect(broker: Broker) -> WireClient:
    return WireClient("127.0.0.1", broker.port)


def state_of(wire: WireClient, transactional_id: str) -> str:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    while True:
        [state] = wire.call(request, 0).transaction_states
        if state.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return str(state.transaction_state)


def begin(wire: WireClient, name: str, value: bytes, **options: int) -> TransactionalProducer:
    producer = TransactionalProducer(wire, name, **options)
    assert producer.init() is ErrorCode.NONE
    assert producer.add(TOPIC) is ErrorCode.NONE
    assert producer.produce(TOPIC, value) is ErrorCode.NONE
    return producer


def test_open_and_decided_transactions_survive_kill_9() -> None:
    with Broker(mode="process") as broker:
        with connect(broker) as wire:
            topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
            assert wire.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
            resumed = begin(wire, "resumed", b"resumed")
            left = begin(wire, "left", b"left", timeout_ms=3_000)
            decided = begin(wire, "decided", b"decided")
            assert decided.end().error_code == 0
            broker.kill()  # whether its markers were written or not

        broker.start()

        with connect(broker) as wire:
            assert state_of(wire, "resumed") == "Ongoing"
            assert state_of(wire, "decided") in ("PrepareCommit", "CompleteCommit")
            # As Flink does: commit by producer id and epoch, without starting anew.
            resumed.wire = decided.wire = wire
            assert resumed.end().error_code == 0
            # The one nobody comes back to is rolled back when its time is up.
            wait_until_stable(wire, TOPIC)
            assert state_of(wire, "left") == "CompleteAbort"
            assert state_of(wire, "decided") == "CompleteCommit"
            assert sorted(filter(None, committed_values(wire, TOPIC))) == [b"decided", b"resumed"]
            left.wire = wire
            assert left.end().error_code == ErrorCode.PRODUCER_FENCED
            assert decided.add(TOPIC) is ErrorCode.NONE
            assert decided.produce(TOPIC, b"next") is ErrorCode.NONE
            assert decided.end().error_code == 0
