"""The hand-made Produce codec says the same as the generated one."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.strategies import project, structs
from tidelog.protocol.apis.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.protocol.apis.produce import NodeEndpoint as NodeEndpointStruct
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.headers import decode_response
from tidelog.protocol.produce import (
    FLEXIBLE_FROM,
    MAX_VERSION,
    MIN_VERSION,
    TOPIC_IDS_FROM,
    NodeEndpoint,
    ProducedPartition,
    ProduceShape,
    decode_produce_request,
    encode_produce_response,
    encode_single_produce_response,
)
from tidelog.protocol.registry import messages_of

VERSIONS = range(MIN_VERSION, MAX_VERSION + 1)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
optional_text = st.sampled_from([None, "", "why", "x" * 200])


def test_the_versions_are_those_of_the_schema() -> None:
    request = messages_of(0).request
    assert (request.MIN_VERSION, request.MAX_VERSION) == (MIN_VERSION, MAX_VERSION)
    assert request.FLEXIBLE_FROM == FLEXIBLE_FROM


@settings(max_examples=30)
@given(structs(ProduceRequest))
def test_requests_are_read_as_the_schema_reads_them(message: ProduceRequest) -> None:
    for version in VERSIONS:
        expected = project(message, version)
        body = expected.encode(version)
        data = decode_produce_request(memoryview(b"head" + body), version, 4)
        assert data.transactional_id == expected.transactional_id
        assert (data.acks, data.timeout_ms) == (expected.acks, expected.timeout_ms)
        assert data.topics == [
            (
                topic.topic_id if version >= TOPIC_IDS_FROM else topic.name,
                [(each.index, each.records) for each in topic.partition_data],
            )
            for topic in expected.topic_data
        ]


def test_records_are_views_into_the_request() -> None:
    for version in VERSIONS:
        message = ProduceRequest.decode(_one_partition(version, records=b"batch"), version)
        assert message.topic_data
        frame = bytearray(message.encode(version))
        [(_, [(_, records)])] = decode_produce_request(memoryview(frame), version).topics
        assert records is not None
        frame[frame.index(b"batch")] = ord("B")
        assert bytes(records) == b"Batch"
        records[0:1] = b"X"  # the log stamps offsets in place
        assert b"Xatch" in frame


def _one_partition(version: int, records: bytes | None) -> bytes:
    partition = PartitionProduceData(index=3, records=records)
    topic = TopicProduceData(name="orders", topic_id=b"i" * 16, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic]).encode(version)


@settings(max_examples=30)
@given(structs(ProduceRequest), st.binary(max_size=40), st.data())
def test_damaged_requests_raise_only_protocol_errors(
    message: ProduceRequest, noise: bytes, data: st.DataObject
) -> None:
    for version in VERSIONS:
        body = bytearray(project(message, version).encode(version))
        at = data.draw(st.integers(0, min(len(body), 100) - 1))
        body[at] = data.draw(st.integers(0, 255))
        for damaged in (bytes(body), bytes(body[:-1]), bytes(body) + b"\x00", noise):
            try:
                decode_produce_request(memoryview(damaged), version)
            except ProtocolError:
                pass


def test_a_shape_decodes_the_requests_that_are_alike() -> None:
    for version in VERSIONS:
        body = memoryview(_one_partition(version, records=b"batch"))
        shape = ProduceShape.of(body, version, decode_produce_request(body, version))
        if version < FLEXIBLE_FROM:
            assert shape is None
            continue
        assert shape is not None
        assert shape.topic == ("orders" if version < TOPIC_IDS_FROM else b"i" * 16)
        for records in (b"x", b"y" * 126, b"z" * 127, b"z" * 20_000):
            alike = memoryview(_one_partition(version, records=records))
            assert shape.decode(alike, version) == (3, memoryview(records))
            assert shape.decode(alike, version - 1) is None
        for other in (_one_partition(version, records=None), b"", bytes(body[:-1]), bytes(200)):
            assert shape.decode(memoryview(other), version) is None


@settings(max_examples=50)
@given(structs(ProduceRequest), st.binary(max_size=8), st.data())
def test_a_shape_says_what_decoding_says_or_nothing(
    message: ProduceRequest, behind: bytes, data: st.DataObject
) -> None:
    for version in range(FLEXIBLE_FROM, MAX_VERSION + 1):
        message.transactional_id = None
        message.topic_data = message.topic_data[:1]
        for topic in message.topic_data:
            topic.partition_data = topic.partition_data[:1]
        body = project(message, version).encode(version) + behind
        decoded = decode_produce_request(memoryview(body), version)
        shape = ProduceShape.of(memoryview(body), version, decoded)
        if shape is None:
            continue
        damaged = bytearray(body)
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
        found = shape.decode(memoryview(damaged), version)
        if found is not None:
            expected = decode_produce_request(memoryview(damaged), version)
            assert expected.topics == [(shape.topic, [found])]
            assert (expected.acks, expected.timeout_ms) == (shape.acks, shape.timeout_ms)


def test_requests_cut_short_are_refused_and_bytes_behind_them_let_be() -> None:
    for version in VERSIONS:
        body = _one_partition(version, records=b"batch")
        for cut in range(len(body)):
            with pytest.raises(ProtocolError):
                decode_produce_request(memoryview(body[:cut]), version)
        decode_produce_request(memoryview(body + b"\x00\x00\x00"), version)


@pytest.mark.parametrize("count", [-1, -2, -(2**31)])
def test_a_negative_number_of_topics_is_refused(count: int) -> None:
    body = struct.pack(">hhii", -1, 1, 100, count)
    with pytest.raises(ProtocolError):
        decode_produce_request(memoryview(body), 4)


def test_unknown_tags_in_a_request_are_skipped() -> None:
    body = _one_partition(9, records=b"batch")
    assert body.endswith(b"\x00\x00\x00")
    tagged = body[:-3] + b"\x01\x05\x02ab" * 3
    [(topic, [(partition, records)])] = decode_produce_request(memoryview(tagged), 9).topics
    assert (topic, partition, bytes(records or b"")) == ("orders", 3, b"batch")


rows = st.builds(
    ProducedPartition,
    int32s,
    int16s,
    int64s,
    int64s,
    int64s,
    optional_text,
    st.lists(st.tuples(int32s, optional_text), max_size=2),
    st.one_of(st.none(), st.tuples(st.integers(0, 2**31 - 1), int32s)),
)
endpoints = st.builds(NodeEndpoint, int32s, st.sampled_from(["", "host"]), int32s, optional_text)


@given(
    st.lists(st.lists(rows, max_size=2), max_size=2),
    int32s,
    int32s,
    st.lists(endpoints, max_size=2),
)
def test_responses_are_those_of_the_schema(
    topics: list[list[ProducedPartition]],
    throttle_ms: int,
    correlation_id: int,
    node_endpoints: list[NodeEndpoint],
) -> None:
    for version in VERSIONS:
        keyed = [
            (b"%016d" % at if version >= TOPIC_IDS_FROM else f"topic-{at}", rows)
            for at, rows in enumerate(topics)
        ]
        frame = encode_produce_response(version, correlation_id, keyed, throttle_ms, node_endpoints)
        expected = ProduceResponse(
            throttle_time_ms=throttle_ms,
            responses=[_topic_response(key, rows) for key, rows in keyed],
            node_endpoints=[NodeEndpointStruct(**each._asdict()) for each in node_endpoints],
        )
        assert struct.unpack(">i", frame[:4]) == (len(frame) - 4,)
        assert decode_response(0, version, frame[4:]) == (
            correlation_id,
            ProduceResponse.decode(expected.encode(version), version),
        )
        assert frame.endswith(expected.encode(version))


def _topic_response(key: str | bytes, rows: list[ProducedPartition]) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=key if isinstance(key, str) else "",
        topic_id=key if isinstance(key, bytes) else bytes(16),
        partition_responses=[
            PartitionProduceResponse(
                index=row.partition,
                error_code=row.error_code,
                base_offset=row.base_offset,
                log_append_time_ms=row.log_append_time_ms,
                log_start_offset=row.log_start_offset,
                record_errors=[
                    BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=text)
                    for at, text in row.record_errors
                ],
                error_message=row.error_message,
                current_leader=LeaderIdAndEpoch()
                if row.current_leader is None
                else LeaderIdAndEpoch(
                    leader_id=row.current_leader[0], leader_epoch=row.current_leader[1]
                ),
            )
            for row in rows
        ],
    )


@pytest.mark.parametrize("name", ["o", "orders", "ö" * 100, "x" * 126, "x" * 127, "x" * 249])
def test_the_answer_about_one_partition_is_the_same_bytes(name: str) -> None:
    for version in VERSIONS:
        key = b"0123456789abcdef" if version >= TOPIC_IDS_FROM else name
        row = ProducedPartition(3, 5, 2**40, 17, 4)
        assert encode_single_produce_response(
            version, -7, key, 3, 5, 2**40, 17, 4, throttle_ms=9
        ) == encode_produce_response(version, -7, [(key, [row])], 9)
