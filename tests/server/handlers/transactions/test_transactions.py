"""The APIs of transactions on the wire, beside what real clients show."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.compatibility.calls import batch, fetch, produce_request
from tests.compatibility.transaction_calls import (
    TransactionalProducer,
    committed_values,
    control_records,
    wait_until_stable,
)
from tidelog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.protocol.apis.describe_transactions import DescribeTransactionsRequest
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest
from tidelog.protocol.apis.list_transactions import ListTransactionsRequest
from tidelog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.testing.wire import WireClient

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[WireClient]:
    with WireClient("127.0.0.1", broker.port) as client:
        yield client


@pytest.fixture
def topic(wire: WireClient) -> str:
    name = f"topic-{next(_numbers)}"
    wanted = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    assert wire.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code == 0
    return name


@pytest.fixture
def producer(wire: WireClient) -> TransactionalProducer:
    made = TransactionalProducer(wire)
    assert made.init() is ErrorCode.NONE
    return made


@pytest.mark.parametrize("version", range(6))
def test_every_idempotent_producer_gets_an_id_of_its_own(wire: WireClient, version: int) -> None:
    answers = [
        wire.call(InitProducerIdRequest(transaction_timeout_ms=1000), version) for _ in range(3)
    ]
    assert all(answer.error_code == 0 and answer.producer_epoch == 0 for answer in answers)
    assert len({answer.producer_id for answer in answers}) == 3


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)]
)
def test_a_fenced_init_has_the_name_of_its_version(
    wire: WireClient, producer: TransactionalProducer, version: int, code: ErrorCode
) -> None:
    producer.init()
    request = InitProducerIdRequest(
        transactional_id=producer.transactional_id,
        transaction_timeout_ms=1000,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch - 1,
    )
    assert wire.call(request, version).error_code == code


@pytest.mark.parametrize(
    ("version", "code"), [(0, ErrorCode.INVALID_PRODUCER_EPOCH), (3, ErrorCode.PRODUCER_FENCED)]
)
def test_a_fenced_producer_is_told_in_the_words_of_its_version(
    producer: TransactionalProducer, topic: str, version: int, code: ErrorCode
) -> None:
    producer.epoch -= 1
    assert producer.add(topic, version=version) is code
    assert producer.add_offsets("g", version=version) is code
    assert producer.end(version=version).error_code == code


def test_a_partition_that_does_not_exist_refuses_the_whole_addition(
    wire: WireClient, producer: TransactionalProducer, topic: str
) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 9])],
    )
    [row] = wire.call(request, 3).results_by_topic_v3_and_below
    assert [each.partition_error_code for each in row.results_by_partition] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize(
    ("version", "missing"),
    [(4, ErrorCode.INVALID_TXN_STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_broker_adds_and_verifies_for_several_transactions(
    wire: WireClient, topic: str, version: int, missing: ErrorCode
) -> None:
    producers = [TransactionalProducer(wire) for _ in range(2)]
    for each in producers:
        each.init()
    producers[0].add(topic, 0)

    def ask(verify_only: bool) -> list[list[int]]:
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    producer_epoch=each.epoch,
                    verify_only=verify_only,
                    topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])],
                )
                for each in producers
            ]
        )
        answer = wire.call(request, version)
        assert answer.error_code == 0
        assert [row.transactional_id for row in answer.results_by_transaction] == [
            each.transactional_id for each in producers
        ]
        return [
            [each.partition_error_code for each in row.topic_results[0].results_by_partition]
            for row in answer.results_by_transaction
        ]

    assert ask(verify_only=True) == [[0, missing], [missing, missing]]
    assert ask(verify_only=False) == [[0, 0], [0, 0]]
    assert ask(verify_only=True) == [[0, 0], [0, 0]]


@pytest.mark.parametrize("version", [9, 11])
def test_records_of_a_partition_outside_of_the_transaction_are_refused(
    wire: WireClient, producer: TransactionalProducer, topic: str, version: int
) -> None:
    """Else a late batch would open a transaction that nobody ends."""
    code = producer.produce(topic, b"stray", version=version)
    assert code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    assert fetch(wire, topic, 0).high_watermark == 0


@pytest.mark.parametrize("version", [9, 12])
def test_requests_in_flight_keep_their_order_while_one_waits_for_the_coordinator(
    wire: WireClient, producer: TransactionalProducer, topic: str, version: int
) -> None:
    """The second request writes to a new partition and one that has begun, the third only to the
    latter: it must not overtake."""
    if version < 12:
        producer.add(topic, 0)
        producer.add(topic, 1)
    assert producer.produce(topic, b"0", version=version) is ErrorCode.NONE

    def request(*rows: tuple[int, int]) -> ProduceRequest:
        return ProduceRequest(
            transactional_id=producer.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[
                        PartitionProduceData(index=index, records=numbered(producer, sequence))
                        for index, sequence in rows
                    ],
                )
            ],
        )

    wire.socket.sendall(
        wire.frame(request((0, 1), (1, 0)), version) + wire.frame(request((0, 2)), version)
    )
    codes = [
        row.error_code
        for _ in range(2)
        for row in wire.receive()[1].responses[0].partition_responses
    ]
    assert codes == [0, 0, 0]


def numbered(producer: TransactionalProducer, sequence: int) -> bytes:
    return batch(
        b"%d" % sequence,
        timestamp=time.time_ns() // 1_000_000,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def test_a_batch_that_comes_after_the_end_is_refused(
    wire: WireClient, producer: TransactionalProducer, topic: str
) -> None:
    producer.add(topic)
    producer.produce(topic, b"a")
    producer.end(commit=False)
    wait_until_stable(wire, topic)
    assert producer.produce(topic, b"late") is not ErrorCode.NONE
    row = fetch(wire, topic, 0, isolation_level=1)
    assert row.last_stable_offset == row.high_watermark


def test_a_plain_batch_inside_of_an_open_transaction_is_refused(
    wire: WireClient, producer: TransactionalProducer, topic: str
) -> None:
    producer.add(topic)
    producer.produce(topic, b"a")
    records = batch(
        b"plain",
        timestamp=time.time_ns() // 1_000_000,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=1,
    )
    [row] = wire.call(produce_request(topic, records), 9).responses[0].partition_responses
    assert row.error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [3, 5])
def test_offsets_follow_the_fate_of_the_transaction(
    wire: WireClient, producer: TransactionalProducer, topic: str, version: int
) -> None:
    group = f"group-{next(_numbers)}"

    def committed() -> tuple[int, int]:
        asked = OffsetFetchRequestGroup(
            group_id=group,
            topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
        )
        request = OffsetFetchRequest(groups=[asked], require_stable=True)
        deadline = time.monotonic() + 30
        while True:
            [found] = wire.call(request, 8).groups[0].topics[0].partitions
            if found.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return found.error_code, found.committed_offset
            assert time.monotonic() < deadline

    if version < 5:
        unannounced = producer.commit_offset(group, topic, 7, version=version)
        assert unannounced is ErrorCode.INVALID_TXN_STATE
    for commit, expected in ((False, -1), (True, 7)):
        if version < 5:
            assert producer.add_offsets(group) is ErrorCode.NONE
        assert producer.commit_offset(group, topic, 7, version=version) is ErrorCode.NONE
        assert producer.end(commit=commit, version=version).error_code == 0
        assert committed() == (0, expected)


def test_offsets_of_topics_that_do_not_exist_are_refused_row_by_row(
    producer: TransactionalProducer,
) -> None:
    code = producer.commit_offset("g", "no-such-topic", 1, version=5)
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offset("", "no-such-topic", 1) is ErrorCode.INVALID_GROUP_ID


def test_transactions_are_described_and_listed(
    wire: WireClient, producer: TransactionalProducer, topic: str
) -> None:
    name = producer.transactional_id
    producer.add(topic, 1)
    describe = DescribeTransactionsRequest(transactional_ids=[name, "nobody", ""])
    found, unknown, empty = wire.call(describe, 0).transaction_states
    assert found.transaction_state == "Ongoing"
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert [(row.topic, row.partitions) for row in found.topics] == [(topic, [1])]
    assert found.transaction_timeout_ms == 60_000
    assert abs(found.transaction_start_time_ms - time.time() * 1000) < 60_000
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST

    def listed(version: int = 2, **filters: Any) -> list[str]:
        answer = wire.call(ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return [row.transactional_id for row in answer.transaction_states]

    assert name in listed(0)
    mine: dict[str, Any] = {"producer_id_filters": [producer.producer_id]}
    assert listed(**mine, state_filters=["Ongoing"]) == [name]
    assert listed(**mine, state_filters=["Empty"]) == []
    assert listed(**mine, duration_filter=0) in ([name], [])
    assert listed(**mine, duration_filter=3_600_000) == []
    assert listed(**mine, transactional_id_pattern="tx-.*") == [name]
    assert listed(**mine, transactional_id_pattern="other-.*") == []


def test_filters_that_make_no_sense_are_told(wire: WireClient) -> None:
    answer = wire.call(ListTransactionsRequest(state_filters=["Ongoing", "Nonsense"]), 0)
    assert answer.unknown_state_filters == ["Nonsense"]
    answer = wire.call(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_producers_of_a_partition_are_described(
    wire: WireClient, producer: TransactionalProducer, topic: str
) -> None:
    producer.add(topic)
    producer.produce(topic, b"a", b"b")
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0, 9])])
    known, unknown = wire.call(request, 0).topics[0].partitions
    [state] = known.active_producers
    assert (state.producer_id, state.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (state.last_sequence, state.current_txn_start_offset) == (1, 0)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer.end()
    wait_until_stable(wire, topic)
    known, _ = wire.call(request, 0).topics[0].partitions
    assert known.active_producers[0].current_txn_start_offset == -1
    assert known.active_producers[0].coordinator_epoch >= 0


def test_an_operator_ends_a_hanging_transaction(
    wire: WireClient, producer: TransactionalProducer, topic: str
) -> None:
    """As `kafka-transactions abort` does: markers from outside, with the coordinator unasked."""
    producer.add(topic)
    producer.produce(topic, b"hanging")
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0, 9])],
                coordinator_epoch=0,
            )
        ]
    )
    [result] = wire.call(request, 1).markers
    assert [each.error_code for each in result.topics[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert len(control_records(wire, topic)) == 1
    assert committed_values(wire, topic) == []
    row = fetch(wire, topic, 0, isolation_level=1)
    assert row.last_stable_offset == row.high_watermark == 2


def test_an_unknown_producer_cannot_end_anything(
    wire: WireClient, producer: TransactionalProducer
) -> None:
    stranger = TransactionalProducer(wire, "stranger")
    stranger.producer_id, stranger.epoch = 4711, 0
    assert stranger.end().error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer.producer_id = 4711
    assert producer.end().error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [8, 9, 12])
@pytest.mark.parametrize("producer_id", [4711, -1])
def test_transactional_batches_without_a_transactional_id_are_refused(
    wire: WireClient, topic: str, version: int, producer_id: int
) -> None:
    """No coordinator would ever end them, and readers of committed records would hang."""
    records = batch(
        b"x",
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=True,
    )
    one = produce_request(topic, records)
    several = produce_request(topic, batch(b"plain"))
    several.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=records))
    for request in (one, several, one):
        for row in wire.call(request, version).responses[0].partition_responses:
            assert row.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert row.base_offset == -1

    found = fetch(wire, topic, 0)
    assert (found.high_watermark, found.last_stable_offset) == (0, 0)


@pytest.mark.parametrize("version", [8, 9, 12])
def test_a_transactional_batch_without_a_producer_id_joins_no_transaction(
    wire: WireClient, topic: str, producer: TransactionalProducer, version: int
) -> None:
    request = produce_request(topic, batch(b"x", is_transactional=True))
    request.transactional_id = producer.transactional_id
    [row] = wire.call(request, version).responses[0].partition_responses
    assert row.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert fetch(wire, topic, 0).high_watermark == 0


def test_a_transactional_batch_behind_an_equal_plain_request_is_refused(
    wire: WireClient, topic: str
) -> None:
    """The second request of the same shape is decoded in a shorter way."""
    plain = produce_request(topic, batch(b"x"))
    for _ in range(2):
        assert wire.call(plain, 9).responses[0].partition_responses[0].error_code == 0
    records = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    row = wire.call(produce_request(topic, records), 9).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert fetch(wire, topic, 0).last_stable_offset == 2


def test_a_transactional_batch_without_a_transactional_id_and_acks_0_ends_the_connection(
    broker: Broker, wire: WireClient, topic: str
) -> None:
    records = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    with WireClient("127.0.0.1", broker.port) as sender:
        sender.send(produce_request(topic, records, acks=0), 9)
        assert sender.is_ended()
    assert fetch(wire, topic, 0).high_watermark == 0


def test_transactional_batches_of_two_producers_in_one_request_are_refused(
    wire: WireClient, topic: str, producer: TransactionalProducer
) -> None:
    def records(producer_id: int) -> bytes:
        return batch(
            b"x",
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            is_transactional=True,
        )

    request = produce_request(topic, records(producer.producer_id + 1))
    request.transactional_id = producer.transactional_id
    request.topic_data[0].partition_data.append(
        PartitionProduceData(index=1, records=records(producer.producer_id))
    )
    answered = wire.call(request, 12).responses[0].partition_responses
    assert [row.error_code for row in answered] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert fetch(wire, topic, 0).high_watermark == 0


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_partitions_that_do_not_exist_join_no_transaction(
    wire: WireClient, topic: str, producer: TransactionalProducer, version: int
) -> None:
    if version < 5:
        producer.add_offsets(f"group-of-{topic}")
    wanted = TxnOffsetCommitRequestTopic(
        name=topic,
        partitions=[
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=1, committed_metadata=""
            )
            for index in (2, 1, -7)
        ],
    )
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=f"group-of-{topic}",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[wanted],
    )
    (answered,) = wire.call(request, version).topics
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {row.partition_index: row.error_code for row in answered.partitions} == {
        2: unknown,
        -7: unknown,
        1: 0,
    }


def test_silent_producers_are_forgotten_once_an_interval() -> None:
    """Long before the next check of the retention, which is five minutes away."""
    settings = {
        "producer.id.expiration.ms": "1",
        "producer.id.expiration.check.interval.ms": "20",
    }
    with Broker(settings=settings) as running, WireClient("127.0.0.1", running.port) as wire:
        wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        assert wire.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code == 0
        records = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0)
        row = wire.call(produce_request("t", records), 9).responses[0].partition_responses[0]
        assert row.error_code == 0
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
        deadline = time.monotonic() + 20
        while wire.call(request, 0).topics[0].partitions[0].active_producers:
            assert time.monotonic() < deadline, "the producer is still remembered"
            time.sleep(0.01)


def test_a_transaction_past_its_timeout_waits_for_the_next_check() -> None:
    weeks = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "2147483647"}
    with Broker(settings=weeks) as running, WireClient("127.0.0.1", running.port) as wire:
        wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        assert wire.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code == 0
        late = TransactionalProducer(wire, "late", timeout_ms=1)
        late.init()
        assert late.produce("t", b"x", version=12) is ErrorCode.NONE
        time.sleep(0.2)
        request = DescribeTransactionsRequest(transactional_ids=["late"])
        assert wire.call(request, 0).transaction_states[0].transaction_state == "Ongoing"
        assert late.end(version=5).error_code == 0
