"""Produce, fetch, metadata and offsets, where clients rely on details."""

import time

import pytest

from tests.compatibility.calls import (
    batch,
    describe_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
    produce_request,
)
from tests.compatibility.conftest import MakeTopic
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.apis.fetch import FetchPartition, FetchTopic, ForgottenTopic
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.record_batch import iterate_headers
from tidelog.testing.wire import WireClient


@pytest.mark.parametrize("version", range(4, 19))
def test_empty_records_have_length_0_and_are_not_null(
    wire: WireClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic()
    request = fetch_request(topic, 0)
    request.topics[0].topic_id = describe_topic(wire, topic).topic_id
    row = wire.call(request, version).responses[0].partitions[0]
    assert row.error_code == 0
    assert row.records is not None
    assert len(row.records) == 0


def test_a_fetch_inside_a_batch_gives_the_whole_batch(
    wire: WireClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    produce(wire, topic, batch(b"a", b"b", b"c", b"d"))
    row = fetch(wire, topic, 2)
    ((_, header),) = iterate_headers(row.records)
    assert (header.base_offset, header.last_offset) == (0, 3)


def test_one_batch_comes_even_above_max_bytes(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for _ in range(3):
        produce(wire, topic, batch(bytes(5000)))
    row = fetch(wire, topic, 0, max_bytes=10, partition_max_bytes=10)
    headers = [header for _, header in iterate_headers(row.records)]
    assert headers[0].base_offset == 0
    assert len(headers) == 1


def test_the_log_start_offset_is_set(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    produce(wire, topic, batch(b"a"))
    assert fetch(wire, topic, 0).log_start_offset == 0


def test_error_rows_carry_their_partition(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    row = fetch(wire, topic, 0, partition=17)
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert row.partition_index == 17
    request = produce_request(topic, batch(b"a"), partition=23)
    row = wire.call(request, 9).responses[0].partition_responses[0]
    assert (row.error_code, row.index) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 23)


def test_and_16_incremental_sessions_send_what_changed(
    wire: WireClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    produce(wire, topic, batch(b"a"))
    full = wire.call(fetch_request(topic, 1, session_id=0, session_epoch=0), 12)
    session_id = full.session_id
    if session_id == 0:
        pytest.skip("the broker answers every fetch in full, which is allowed")
    nothing = wire.call(
        fetch_request(topic, 1, session_id=session_id, session_epoch=1, topics=[]), 12
    )
    assert nothing.responses == []
    produce(wire, topic, batch(b"b"))
    changed = wire.call(
        fetch_request(topic, 1, session_id=session_id, session_epoch=2, topics=[]), 12
    )
    (row,) = changed.responses[0].partitions
    assert row.high_watermark == 2
    assert row.last_stable_offset == 2
    forgotten = wire.call(
        fetch_request(
            topic,
            1,
            session_id=session_id,
            session_epoch=3,
            topics=[],
            forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=[0])],
        ),
        12,
    )
    assert forgotten.responses == []


def test_without_a_session_every_fetch_is_full(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for _ in range(2):
        answer = wire.call(fetch_request(topic, 0, session_id=0, session_epoch=-1), 12)
        assert answer.session_id == 0
        assert len(answer.responses) == 1


def test_a_wrong_session_is_told(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    answer = wire.call(fetch_request(topic, 0, session_id=123456, session_epoch=5), 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_log_append_time_is_in_the_produce_response(
    wire: WireClient, make_topic: MakeTopic
) -> None:
    before_ms = time.time_ns() // 1_000_000
    stamped = produce(wire, make_topic(message_timestamp_type="LogAppendTime"), batch(b"a"))
    assert stamped.log_append_time_ms >= before_ms
    assert produce(wire, make_topic(), batch(b"a")).log_append_time_ms == -1


def test_the_time_index_uses_log_append_time(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    stamped = produce(wire, topic, batch(b"a", timestamp=5))
    found = list_offset(wire, topic, stamped.log_append_time_ms)
    assert (found.offset, found.timestamp) == (0, stamped.log_append_time_ms)
    assert list_offset(wire, topic, stamped.log_append_time_ms + 1).offset == -1


def test_acks_0_gets_no_reply_at_all(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    wire.send(produce_request(topic, batch(b"a"), acks=0), 9)
    asked = wire.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    answered, _ = wire.receive()
    assert answered == asked
    row = fetch(wire, topic, 0, max_wait_ms=20_000, min_bytes=1)
    assert row.high_watermark == 1


def test_a_null_key_on_a_compacted_topic_is_refused(
    wire: WireClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(cleanup_policy="compact")
    assert produce(wire, topic, batch(b"a", key=None)).error_code == ErrorCode.INVALID_RECORD
    assert produce(wire, topic, batch(b"a", key=b"k")).error_code == 0


def test_max_message_bytes_is_enforced(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="1000")
    assert produce(wire, topic, batch(bytes(2000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(wire, topic, batch(bytes(100))).error_code == 0


def test_metadata_creates_topics_when_allowed(wire: WireClient) -> None:
    name = "created-by-metadata"
    wanted = [MetadataRequestTopic(name=name)]
    refused = wire.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 9)
    assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        answer = wire.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 9)
        if answer.topics[0].error_code == 0:
            break
        time.sleep(0.01)
    assert len(answer.topics[0].partitions) == 1


def test_empty_means_all_in_v0_and_none_afterwards(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert topic in {each.name for each in wire.call(MetadataRequest(topics=[]), 0).topics}
    assert wire.call(MetadataRequest(topics=[]), 1).topics == []
    assert topic in {each.name for each in wire.call(MetadataRequest(topics=None), 1).topics}


def test_leader_epochs_are_real(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    epoch = describe_topic(wire, topic).partitions[0].leader_epoch
    assert epoch >= 0
    produce(wire, topic, batch(b"a"))
    ((_, header),) = iterate_headers(fetch(wire, topic, 0).records)
    assert header.partition_leader_epoch == epoch
    assert list_offset(wire, topic, -1).leader_epoch == epoch
    older = fetch(wire, topic, 0, current_leader_epoch=epoch + 1)
    assert older.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_an_old_leader_epoch_is_fenced(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    epoch = describe_topic(wire, topic).partitions[0].leader_epoch
    if epoch > 0:
        row = fetch(wire, topic, 0, current_leader_epoch=epoch - 1)
        assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_topic_made_again_starts_over(wire: WireClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    produce(wire, topic, batch(b"old"))
    wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5000), 6)
    again = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    assert wire.call(CreateTopicsRequest(topics=[again]), 7).topics[0].error_code == 0
    assert describe_topic(wire, topic).partitions[0].leader_epoch >= 0
    assert list_offset(wire, topic, -1).offset == 0


@pytest.mark.parametrize(
    ("timestamp", "served_from", "expected"),
    [(-1, 1, 3), (-2, 1, 0), (-3, 7, 2), (-4, 8, 0), (-5, 9, -1)],
)
def test_special_timestamps_and_their_versions(
    wire: WireClient, make_topic: MakeTopic, timestamp: int, served_from: int, expected: int
) -> None:
    topic = make_topic()
    for number in range(3):
        produce(wire, topic, batch(b"x", timestamp=1000 + number))
    row = list_offset(wire, topic, timestamp, version=served_from)
    assert (row.error_code, row.offset) == (0, expected)
    if served_from > 1:
        row = list_offset(wire, topic, timestamp, version=served_from - 1)
        assert row.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_topic_id_that_nobody_has_is_told(wire: WireClient) -> None:
    request = fetch_request("", 0)
    request.topics = [FetchTopic(topic_id=b"\x07" * 16, partitions=[FetchPartition(partition=0)])]
    row = wire.call(request, 13).responses[0].partitions[0]
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID
