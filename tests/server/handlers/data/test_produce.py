"""Produce on the wire: versions, acks, errors, idempotence."""

from __future__ import annotations

import struct

import pytest

from tests.server.batches import (
    PRODUCE_VERSION,
    batch,
    fetch_request,
    now_ms,
    produce,
    produce_request,
    rows,
    values,
)
from tests.server.running_node import RunningNode
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.record_batch import write_crc
from tidelog.protocol.records import Record, encode_batch
from tidelog.testing.wire import ConnectionEnded, WireClient


def _row(client: WireClient, *args: object, version: int = PRODUCE_VERSION, **more: object):  # type: ignore[no-untyped-def]
    response = client.call(produce_request(*args, **more), version)  # type: ignore[arg-type]
    return response.responses[0].partition_responses[0]


def test_every_version_appends(shared_node: RunningNode) -> None:
    topic_id = shared_node.create_topic("every-version")
    with shared_node.client() as client:
        for offset, version in enumerate(range(3, 14)):
            topic = "every-version" if version < 13 else topic_id
            row = _row(client, topic, {0: batch(b"v%d" % version)}, version=version)
            assert (row.error_code, row.base_offset) == (0, offset)
        found = client.call(fetch_request("every-version", {0: 0}), 12)
    assert values(rows(found)[0]) == [b"v%d" % version for version in range(3, 14)]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
def test_pipelined_requests_are_answered_in_order(
    shared_node: RunningNode, acks: int, durability: str
) -> None:
    topic = f"pipelined-{acks}-{durability}"
    shared_node.create_topic(topic, durability=durability)
    with shared_node.client() as client:
        frames = [
            client.frame(produce_request(topic, {0: batch(b"%d" % number)}, acks=acks), 9)
            for number in range(300)
        ]
        client.socket.sendall(b"".join(frames))
        for number in range(300):
            correlation_id, response = client.receive()
            row = response.responses[0].partition_responses[0]
            assert (correlation_id, row.error_code, row.base_offset) == (number + 1, 0, number)


def test_other_requests_keep_their_place_behind_waiting_produce_requests(
    shared_node: RunningNode,
) -> None:
    shared_node.create_topic("in-order")
    with shared_node.client() as client:
        frames = []
        for number in range(50):
            frames.append(client.frame(produce_request("in-order", {0: batch(b"x")}), 9))
            frames.append(client.frame(fetch_request("in-order", {0: number}), 12))
        client.socket.sendall(b"".join(frames))
        for number in range(50):
            correlation_id, produced = client.receive()
            assert correlation_id == 2 * number + 1
            assert produced.responses[0].partition_responses[0].base_offset == number
            correlation_id, fetched = client.receive()
            assert correlation_id == 2 * number + 2
            # What was acknowledged before is there for the next request of the connection.
            assert rows(fetched)[0].high_watermark == number + 1


def test_acks_0_gets_no_answer(shared_node: RunningNode) -> None:
    shared_node.create_topic("acks-0", durability="page-cache")
    with shared_node.client() as client:
        for _ in range(5):
            client.send(produce_request("acks-0", {0: batch(b"x")}, acks=0), 9)
        found = client.call(fetch_request("acks-0", {0: 0}), 12)
        assert len(values(rows(found)[0])) == 5


def test_an_error_with_acks_0_ends_the_connection(shared_node: RunningNode) -> None:
    with shared_node.client() as client:
        client.send(produce_request("not-there", {0: batch(b"x")}, acks=0), 9)
        assert client.is_ended()


def test_records_sent_with_acks_0_before_a_close_are_kept(shared_node: RunningNode) -> None:
    shared_node.create_topic("acks-0-close", durability="page-cache")
    with shared_node.client() as client:
        frame = client.frame(produce_request("acks-0-close", {0: batch(b"x")}, acks=0), 9)
        client.socket.sendall(frame * 500)
    with shared_node.client() as client:
        found = client.call(
            fetch_request("acks-0-close", {0: 499}, max_wait_ms=20_000, min_bytes=1), 12
        )
        assert len(values(rows(found)[0])) == 1


def test_several_partitions_are_answered_each(shared_node: RunningNode) -> None:
    shared_node.create_topic("several", 3)
    with shared_node.client() as client:
        request = produce_request("several", {0: batch(b"a"), 7: batch(b"b"), 2: batch(b"c")})
        answered = client.call(request, 9).responses[0].partition_responses
    assert [(row.index, row.error_code) for row in answered] == [
        (0, 0),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, 0),
    ]


@pytest.mark.parametrize("acks", [2, -2, 99])
def test_other_acks_are_refused(shared_node: RunningNode, acks: int) -> None:
    shared_node.create_topic(f"acks{acks}")
    with shared_node.client() as client:
        row = _row(client, f"acks{acks}", {0: batch(b"x")}, acks=acks)
        assert row.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert row.base_offset == -1


def test_unknown_topics_are_refused(shared_node: RunningNode) -> None:
    with shared_node.client() as client:
        row = _row(client, "nowhere", {0: batch(b"x")})
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        row = _row(client, b"0123456789abcdef", {0: batch(b"x")}, version=13)
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def _old_message_set(magic: int) -> bytes:
    return struct.pack(">qiIbb", 0, 80, 0, magic, 0) + bytes(80)


@pytest.mark.parametrize(
    ("records", "version", "code"),
    [
        (None, 9, ErrorCode.INVALID_RECORD),
        (b"", 9, ErrorCode.INVALID_RECORD),
        (b"too short", 9, ErrorCode.INVALID_RECORD),
        (_old_message_set(0), 9, ErrorCode.INVALID_RECORD),
        (_old_message_set(1), 3, ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), 9, ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1] + b"?", 9, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a", compression=Compression.ZSTD), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_records_that_are_no_batch_are_refused(
    shared_node: RunningNode, records: bytes | None, version: int, code: ErrorCode
) -> None:
    topic = "refused"
    if shared_node.call(lambda: shared_node.node.partitions.get(topic, 0)) is None:
        shared_node.create_topic(topic)
    with shared_node.client() as client:
        row = _row(client, topic, {0: records}, version=version)
        assert row.error_code == code
        if version >= 8:
            assert row.error_message
        found = rows(client.call(fetch_request(topic, {0: 0}), 12))[0]
        assert found.high_watermark == 0


def test_an_idempotent_retry_gets_the_offset_of_the_first_try(shared_node: RunningNode) -> None:
    shared_node.create_topic("idempotent")
    with shared_node.client() as client:

        def send(sequence: int) -> object:
            records = batch(b"x", b"y", producer_id=7, producer_epoch=0, base_sequence=sequence)
            return _row(client, "idempotent", {0: records})

        assert send(0).base_offset == 0  # type: ignore[attr-defined]
        assert send(2).base_offset == 2  # type: ignore[attr-defined]
        retried = send(0)
        assert (retried.error_code, retried.base_offset) == (0, 0)  # type: ignore[attr-defined]
        skipped = send(8)
        assert skipped.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # type: ignore[attr-defined]
        assert rows(client.call(fetch_request("idempotent", {0: 0}), 12))[0].high_watermark == 4


def test_the_append_time_is_answered_where_the_topic_has_it(shared_node: RunningNode) -> None:
    shared_node.create_topic("append-time", message_timestamp_type="LogAppendTime")
    shared_node.create_topic("create-time")
    before_ms = now_ms()
    with shared_node.client() as client:
        row = _row(client, "append-time", {0: batch(b"x")})
        assert before_ms - 60_000 < row.log_append_time_ms <= now_ms() + 60_000
        assert _row(client, "create-time", {0: batch(b"x")}).log_append_time_ms == -1


def test_a_batch_above_the_topic_s_limit_is_refused(shared_node: RunningNode) -> None:
    shared_node.create_topic("small", max_message_bytes="1000")
    with shared_node.client() as client:
        row = _row(client, "small", {0: batch(bytes(2000))})
        assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert _row(client, "small", {0: batch(bytes(100))}).error_code == 0


@pytest.mark.parametrize("version", range(3, 14))
def test_the_records_at_fault_are_named(shared_node: RunningNode, version: int) -> None:
    """A client can tell the ten bad records of a hundred, and send the others again."""
    name = f"compacted-{version}"
    topic_id = shared_node.create_topic(name, cleanup_policy="compact")
    topic = name if version < 13 else topic_id
    records = [
        Record(index, now_ms(), None if index % 10 == 7 else b"k", b"v") for index in range(100)
    ]
    with shared_node.client() as client:
        row = _row(client, topic, {0: bytes(encode_batch(records))}, version=version)
    assert (row.error_code, row.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    if version >= 5:
        assert row.log_start_offset == 0
    if version >= 8:
        assert [each.batch_index for each in row.record_errors] == list(range(7, 100, 10))
        assert {each.batch_index_error_message for each in row.record_errors} == {
            f"Compacted topic cannot accept message without key in topic partition {name}-0"
        }
        assert "10 record errors" in row.error_message


def test_a_batch_that_consumers_could_not_read_is_refused_where_the_topic_validates(
    shared_node: RunningNode,
) -> None:
    shared_node.create_topic("validated", record_validation_enable="true")
    damaged = bytearray(batch(b"a", b"b"))
    damaged[61] ^= 0x30
    write_crc(damaged, 0, len(damaged))
    with shared_node.client() as client:
        row = _row(client, "validated", {0: bytes(damaged)})
        assert row.error_code == ErrorCode.INVALID_RECORD
        assert _row(client, "validated", {0: batch(b"a", b"b")}).base_offset == 0


def test_internal_topics_take_no_records_of_clients(shared_node: RunningNode) -> None:
    from tidelog.protocol.apis.find_coordinator import FindCoordinatorRequest

    with shared_node.client() as client:
        client.call(FindCoordinatorRequest(key="group", key_type=0), 2)
        row = _row(client, "__consumer_offsets", {0: batch(b"x", key=b"k")})
        assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_compressed_batch_is_served_as_it_came(shared_node: RunningNode) -> None:
    shared_node.create_topic("compressed")
    records = [Record(index, now_ms(), b"k", b"value" * 50) for index in range(20)]
    with shared_node.client() as client:
        for codec in Compression:
            sent = encode_batch(records, compression=codec)
            row = _row(client, "compressed", {0: bytes(sent)})
            assert row.error_code == 0
            answer = client.call(fetch_request("compressed", {0: row.base_offset}), 12)
            found = rows(answer)[0]
            assert len(values(found)) == 20
            # All but the base offset and the leader epoch.
            assert bytes(found.records)[16:] == bytes(sent)[16:]


@pytest.mark.parametrize("version", [0, 1, 2, 14])
def test_versions_that_are_not_served_end_the_connection(
    shared_node: RunningNode, version: int
) -> None:
    with shared_node.client() as client:
        client.socket.sendall(struct.pack(">ihhih", 10, 0, version, 1, -1))
        assert client.is_ended()


def test_a_malformed_request_ends_only_its_own_connection(shared_node: RunningNode) -> None:
    shared_node.create_topic("bystander")
    with shared_node.client() as good, shared_node.client() as bad:
        produce(good, "bystander", b"before")
        frame = bytearray(bad.frame(produce_request("bystander", {0: batch(b"x")}), 9))
        frame[-10:] = b"\xff" * 10
        frame[20:30] = b"\xff" * 10
        bad.socket.sendall(frame)
        with pytest.raises((ConnectionEnded, AssertionError)):
            bad.receive()
        assert produce(good, "bystander", b"after") == 1
