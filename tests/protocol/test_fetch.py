"""The hand-made Fetch codec says the same as the generated one."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.strategies import project, structs
from tidelog.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from tidelog.protocol.apis.fetch import FetchPartition as FetchPartitionStruct
from tidelog.protocol.apis.fetch import FetchTopic as FetchTopicStruct
from tidelog.protocol.apis.fetch import NodeEndpoint as NodeEndpointStruct
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.fetch import (
    FLEXIBLE_FROM,
    MAX_VERSION,
    MIN_VERSION,
    TOPIC_IDS_FROM,
    FetchedPartition,
    FetchPartition,
    decode_fetch_request,
    encode_fetch_response,
)
from tidelog.protocol.headers import decode_response
from tidelog.protocol.produce import NodeEndpoint
from tidelog.protocol.registry import messages_of

VERSIONS = range(MIN_VERSION, MAX_VERSION + 1)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


def test_the_versions_are_those_of_the_schema() -> None:
    request = messages_of(1).request
    assert (request.MIN_VERSION, request.MAX_VERSION) == (MIN_VERSION, MAX_VERSION)
    assert request.FLEXIBLE_FROM == FLEXIBLE_FROM


@settings(max_examples=30)
@given(structs(FetchRequest))
def test_requests_are_read_as_the_schema_reads_them(message: FetchRequest) -> None:
    for version in VERSIONS:
        expected = project(message, version)
        body = expected.encode(version)
        data = decode_fetch_request(memoryview(b"head" + body), version, 4)

        def key(topic: Any, version: int = version) -> str | bytes:
            return topic.topic_id if version >= TOPIC_IDS_FROM else topic.topic  # type: ignore[no-any-return]

        for name in (
            "cluster_id",
            "max_wait_ms",
            "min_bytes",
            "max_bytes",
            "isolation_level",
            "session_id",
            "session_epoch",
            "rack_id",
        ):
            assert getattr(data, name) == getattr(expected, name)
        replica = expected.replica_state.replica_id if version >= 15 else expected.replica_id
        assert (data.replica_id, data.replica_epoch) == (
            replica,
            expected.replica_state.replica_epoch,
        )
        assert data.topics == [
            (key(topic), [_as_tuple(each) for each in topic.partitions])
            for topic in expected.topics
        ]
        assert data.forgotten == [
            (key(topic), topic.partitions) for topic in expected.forgotten_topics_data
        ]


def _as_tuple(partition: FetchPartitionStruct) -> FetchPartition:
    return FetchPartition(**{name: getattr(partition, name) for name in FetchPartition._fields})


def _one_partition(version: int) -> bytes:
    partition = FetchPartitionStruct(partition=3, fetch_offset=9, partition_max_bytes=1000)
    topic = FetchTopicStruct(topic="orders", topic_id=b"i" * 16, partitions=[partition])
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic]).encode(version)


def test_requests_cut_short_are_refused_and_bytes_behind_them_let_be() -> None:
    for version in VERSIONS:
        body = _one_partition(version)
        for cut in range(len(body)):
            with pytest.raises(ProtocolError):
                decode_fetch_request(memoryview(body[:cut]), version)
        decode_fetch_request(memoryview(body + b"\x00\x00\x00"), version)


@settings(max_examples=30)
@given(structs(FetchRequest), st.binary(max_size=60), st.data())
def test_damaged_requests_raise_only_protocol_errors(
    message: FetchRequest, noise: bytes, data: st.DataObject
) -> None:
    for version in VERSIONS:
        body = bytearray(project(message, version).encode(version))
        at = data.draw(st.integers(0, min(len(body), 150) - 1))
        body[at] = data.draw(st.integers(0, 255))
        for damaged in (bytes(body), bytes(body[:-1]), bytes(body) + b"\x00", noise):
            try:
                decode_fetch_request(memoryview(damaged), version)
            except ProtocolError:
                pass


def test_unknown_tags_in_a_request_are_skipped() -> None:
    body = _one_partition(18)
    # After the partition, after the topic; then no forgotten topics, no rack; at the end.
    assert body.endswith(b"\x00\x00\x01\x01\x00")
    unknown = b"\x01\x32\x02ab"
    tagged = body[:-5] + unknown + unknown + b"\x01\x01" + unknown
    data = decode_fetch_request(memoryview(tagged), 18)
    assert data.topics == decode_fetch_request(memoryview(body), 18).topics


def _with_size(row: FetchedPartition) -> FetchedPartition:
    assert row.records is None or isinstance(row.records, bytes)
    return row._replace(records_size=len(row.records or b""))


pairs = st.tuples(int64s, int64s)
rows = st.builds(
    FetchedPartition,
    int32s,
    int16s,
    int64s,
    int64s,
    int64s,
    st.one_of(st.none(), st.sampled_from([b"b", b"batch" * 50, b"x" * 20000])),
    st.just(0),
    st.one_of(st.none(), st.lists(pairs, max_size=2)),
    int32s,
    st.one_of(st.none(), st.tuples(st.integers(0, 2**31 - 1), int64s)),
    st.one_of(st.none(), st.tuples(st.integers(0, 2**31 - 1), int32s)),
    st.one_of(st.none(), st.tuples(st.integers(0, 2**63 - 1), int32s)),
).map(_with_size)
endpoints = st.builds(
    NodeEndpoint, int32s, st.just("host"), int32s, st.sampled_from([None, "", "rack"])
)


@given(
    st.lists(st.lists(rows, max_size=2), max_size=2),
    st.tuples(int32s, int32s, int16s, int32s),
    st.lists(endpoints, max_size=2),
)
def test_responses_are_those_of_the_schema(
    topics: list[list[FetchedPartition]],
    numbers: tuple[int, int, int, int],
    node_endpoints: list[NodeEndpoint],
) -> None:
    correlation_id, throttle_ms, error_code, session_id = numbers
    for version in VERSIONS:
        keyed = [
            (b"%016d" % at if version >= TOPIC_IDS_FROM else f"topic-{at}", rows)
            for at, rows in enumerate(topics)
        ]
        pieces = encode_fetch_response(
            version, correlation_id, throttle_ms, error_code, session_id, keyed, node_endpoints
        )
        frame = b"".join(pieces)  # type: ignore[arg-type]
        expected = FetchResponse(
            throttle_time_ms=throttle_ms,
            error_code=error_code,
            session_id=session_id,
            responses=[_topic_response(key, rows) for key, rows in keyed],
            node_endpoints=[NodeEndpointStruct(**each._asdict()) for each in node_endpoints],
        )
        assert struct.unpack(">i", frame[:4]) == (len(frame) - 4,)
        assert frame.endswith(expected.encode(version))
        assert decode_response(1, version, frame[4:]) == (
            correlation_id,
            FetchResponse.decode(expected.encode(version), version),
        )


def _topic_response(key: str | bytes, rows: list[FetchedPartition]) -> FetchableTopicResponse:
    return FetchableTopicResponse(
        topic=key if isinstance(key, str) else "",
        topic_id=key if isinstance(key, bytes) else bytes(16),
        partitions=[
            PartitionData(
                partition_index=row.partition,
                error_code=row.error_code,
                high_watermark=row.high_watermark,
                last_stable_offset=row.last_stable_offset,
                log_start_offset=row.log_start_offset,
                diverging_epoch=_pair(EpochEndOffset, row.diverging_epoch),
                current_leader=_pair(LeaderIdAndEpoch, row.current_leader),
                snapshot_id=_pair(SnapshotId, row.snapshot_id),
                aborted_transactions=None
                if row.aborted_transactions is None
                else [
                    AbortedTransaction(producer_id=producer, first_offset=offset)
                    for producer, offset in row.aborted_transactions
                ],
                preferred_read_replica=row.preferred_read_replica,
                records=row.records or b"",  # type: ignore[arg-type]
            )
            for row in rows
        ],
    )


def _pair(cls: type[Any], pair: tuple[int, int] | None) -> Any:
    if pair is None:
        return cls()
    return cls(**dict(zip((each.name for each in cls.FIELDS), pair, strict=True)))


class FileRange:
    """Stands for bytes that are still in a file."""


def test_records_go_between_the_buffers_as_they_are() -> None:
    first, second = FileRange(), FileRange()
    rows = [
        FetchedPartition(0, records=first, records_size=100),
        FetchedPartition(1),
        FetchedPartition(2, records=second, records_size=50),
    ]
    for version in VERSIONS:
        key = b"i" * 16 if version >= TOPIC_IDS_FROM else "orders"
        pieces = encode_fetch_response(version, 1, 0, 0, 0, [(key, rows)])
        assert [piece for piece in pieces if isinstance(piece, FileRange)] == [first, second]
        buffers = [piece for piece in pieces if isinstance(piece, bytearray)]
        assert len(buffers) + 2 == len(pieces)
        assert struct.unpack(">i", buffers[0][:4]) == (sum(map(len, buffers)) + 150 - 4,)
        assert all(buffers)


def test_no_records_have_length_zero_and_are_never_null() -> None:
    for version in VERSIONS:
        key = b"i" * 16 if version >= TOPIC_IDS_FROM else "orders"
        [frame] = encode_fetch_response(version, 1, 0, 0, 0, [(key, [FetchedPartition(0)])])
        assert isinstance(frame, bytearray)
        _, response = decode_response(1, version, frame[4:])
        assert isinstance(response, FetchResponse)
        assert response.responses[0].partitions[0].records == b""
