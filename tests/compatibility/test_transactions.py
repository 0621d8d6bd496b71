"""Transactions, where other brokers got them wrong."""

from __future__ import annotations

import pytest

from tests.compatibility.calls import fetch
from tests.compatibility.conftest import MakeTopic
from tests.compatibility.transaction_calls import (
    TransactionalProducer,
    committed_values,
    control_records,
    read_committed,
    wait_until_stable,
)
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.apis.describe_transactions import DescribeTransactionsRequest
from tidelog.protocol.apis.end_txn import EndTxnRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.testing.wire import WireClient


def test_aborted_transactions_are_sorted_and_only_for_read_committed(
    wire: WireClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producers = [TransactionalProducer(wire) for _ in range(4)]
    for producer in producers:
        producer.init()
        producer.add(topic)
        producer.produce(topic, b"never")
    for producer in reversed(producers):
        producer.end(commit=False)
    wait_until_stable(wire, topic)

    row = read_committed(wire, topic)

    assert [a.first_offset for a in row.aborted_transactions] == [0, 1, 2, 3]
    assert [a.producer_id for a in row.aborted_transactions] == [p.producer_id for p in producers]
    assert not fetch(wire, topic, 0, isolation_level=0).aborted_transactions


def test_control_records_have_kafkas_exact_layout(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = TransactionalProducer(wire)
    producer.init()
    for commit in (True, False):
        producer.add(topic)
        producer.produce(topic, b"x")
        producer.end(commit=commit)
        wait_until_stable(wire, topic)

    committed, aborted = control_records(wire, topic)

    assert committed.key == b"\x00\x00\x00\x01"  # version 0, type 1
    assert aborted.key == b"\x00\x00\x00\x00"
    for record in (committed, aborted):
        assert record.value is not None
        assert len(record.value) == 6
        assert record.value[:2] == b"\x00\x00"  # version 0, then the coordinator's epoch
        assert int.from_bytes(record.value[2:], "big", signed=True) >= 0


def test_the_finalized_feature_is_what_clients_read(wire: WireClient) -> None:
    answer = wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    assert finalized["transaction.version"] == 2


def test_end_txn_v5_raises_the_epoch_and_a_retry_gets_the_same(
    wire: WireClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = TransactionalProducer(wire)
    producer.init()
    epoch = producer.epoch
    assert producer.produce(topic, b"a", version=12) is ErrorCode.NONE  # joins by writing
    first = producer.end(version=5)
    assert (first.error_code, first.producer_epoch) == (0, epoch + 1)
    wait_until_stable(wire, topic)

    retried = producer.end_once_complete(version=5, epoch=epoch)

    assert (retried.error_code, retried.producer_id) == (0, first.producer_id)
    assert retried.producer_epoch == epoch + 1
    assert committed_values(wire, topic) == [b"a"]


def test_a_commit_that_races_the_coordinators_abort_is_fenced(
    wire: WireClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = TransactionalProducer(wire, timeout_ms=50)
    producer.init()
    producer.produce(topic, b"too late", version=12)
    wait_until_stable(wire, topic)  # the coordinator has rolled it back
    assert producer.end_once_complete(version=5).error_code == ErrorCode.PRODUCER_FENCED
    assert committed_values(wire, topic) == []
    assert producer.produce(topic, b"later", version=12) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_whose_transaction_timed_out_aborts_and_goes_on(
    wire: WireClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = TransactionalProducer(wire, timeout_ms=2_000)  # enough for the second one
    producer.init()
    producer.produce(topic, b"too late", version=12)
    wait_until_stable(wire, topic)
    answer = producer.end_once_complete(commit=False, version=5)
    assert (answer.error_code, answer.producer_epoch) == (0, 1)
    assert producer.produce(topic, b"in time", version=12) is ErrorCode.NONE
    assert producer.end(version=5).error_code == 0
    wait_until_stable(wire, topic)
    assert committed_values(wire, topic) == [b"in time"]


def test_an_end_while_the_previous_one_completes_is_concurrent(
    wire: WireClient, make_topic: MakeTopic
) -> None:
    """Sent in one go, so that the second arrives before the markers of the first are durable."""
    topic = make_topic()
    producer = TransactionalProducer(wire)
    producer.init()
    producer.produce(topic, b"a", version=12)
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    wire.socket.sendall(wire.frame(request, 5) + wire.frame(request, 5))
    codes = [wire.receive()[1].error_code for _ in range(2)]
    assert codes[0] == ErrorCode.NONE
    assert codes[1] in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE)
    wait_until_stable(wire, topic)
    assert committed_values(wire, topic) == [b"a"]


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
def test_only_transactions_v2_end_an_empty_transaction_and_only_by_an_abort(
    wire: WireClient, version: int, commit: bool
) -> None:
    """Clients do not ask for it: a commit of nothing ends in the client."""
    producer = TransactionalProducer(wire)
    producer.init()
    answer = producer.end(commit=commit, version=version)
    if version == 5 and not commit:
        assert (answer.error_code, answer.producer_epoch) == (0, 1)
    else:
        assert answer.error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 3, 5])
def test_timeouts_above_the_maximum_are_rejected(wire: WireClient, version: int) -> None:
    producer = TransactionalProducer(wire, timeout_ms=15 * 60 * 1000 + 1)
    assert producer.init(version=version) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    producer.timeout_ms = 15 * 60 * 1000
    assert producer.init(version=version) is ErrorCode.NONE


def test_a_transaction_is_resumed_by_producer_id_and_epoch(
    broker: Broker, wire: WireClient, make_topic: MakeTopic
) -> None:
    """Flink's sink comes back with what it wrote down and commits without starting anew."""
    topic = make_topic()
    producer = TransactionalProducer(wire)
    producer.init()
    producer.add(topic)
    producer.produce(topic, b"pre-committed")
    with WireClient("127.0.0.1", broker.port) as other:
        resumed = TransactionalProducer(other, producer.transactional_id)
        resumed.producer_id, resumed.epoch = producer.producer_id, producer.epoch
        assert resumed.end().error_code == 0
        assert resumed.end().error_code in (0, ErrorCode.CONCURRENT_TRANSACTIONS)
    wait_until_stable(wire, topic)
    assert committed_values(wire, topic) == [b"pre-committed"]


def test_a_late_end_cannot_hit_the_next_transaction_in_v2(
    wire: WireClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = TransactionalProducer(wire)
    producer.init()
    epoch = producer.epoch
    producer.produce(topic, b"first", version=12)
    producer.end(version=5)
    assert producer.produce(topic, b"second", version=12) is ErrorCode.NONE
    new_epoch = producer.epoch

    late = producer.end(version=5, epoch=epoch)

    assert late.error_code == ErrorCode.PRODUCER_FENCED
    describe = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    [state] = wire.call(describe, 0).transaction_states
    assert (state.transaction_state, state.producer_epoch) == ("Ongoing", new_epoch)
    assert producer.end(version=5, commit=False).error_code == 0
    wait_until_stable(wire, topic)
    assert committed_values(wire, topic) == [b"first"]
