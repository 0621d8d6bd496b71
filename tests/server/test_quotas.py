"""Quotas at work: clients are told to wait and are not read from meanwhile."""

from __future__ import annotations

import time

import pytest

from tests.server.batches import batch, fetch_request, produce, produce_request, rows, values
from tests.server.running_node import RunningNode
from tidelog.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tidelog.protocol.apis.api_versions import ApiVersionsRequest
from tidelog.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.errors import ErrorCode
from tidelog.testing.wire import ConnectionEnded, WireClient

pytestmark = pytest.mark.realtime


def _set_quota(
    node: RunningNode,
    key: str,
    value: float,
    entity_type: str = "client-id",
    entity_name: str | None = "limited",
) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type=entity_type, entity_name=entity_name)],
        ops=[OpData(key=key, value=value)],
    )
    with node.client() as client:
        answer = client.call(AlterClientQuotasRequest(entries=[entry]), 1)
    assert answer.entries[0].error_code == 0


def test_a_producer_above_its_quota_is_throttled_and_not_read_from(served: RunningNode) -> None:
    served.create_topic("quota", durability="page-cache")
    _set_quota(served, "producer_byte_rate", 20_000)
    with served.client(client_id="limited") as limited, served.client() as free:
        request = produce_request("quota", {0: batch(bytes(250_000))})
        answer = limited.call(request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert answer.throttle_time_ms > 500
        started = time.monotonic()
        assert limited.call(ApiVersionsRequest(), 0).error_code == 0
        assert time.monotonic() - started >= answer.throttle_time_ms / 1000 - 0.3
        # Others are not bound by it.
        assert free.call(request, 9).throttle_time_ms == 0


def test_a_consumer_above_its_quota_gets_no_records_for_a_while(served: RunningNode) -> None:
    served.create_topic("quota", durability="page-cache")
    with served.client() as producer:
        for _ in range(6):
            produce(producer, "quota", bytes(100_000))
    _set_quota(served, "consumer_byte_rate", 30_000)
    with served.client(client_id="limited") as limited:
        offset = 0
        throttled = 0
        while offset < 6 and not throttled:
            answer = limited.call(fetch_request("quota", {0: offset}, max_wait_ms=0), 12)
            throttled = answer.throttle_time_ms
            found = rows(answer)[0]
            assert found.high_watermark == 6
            assert (values(found) == []) == bool(throttled)
            offset += len(values(found))
        assert throttled > 0


@pytest.mark.parametrize("percentage", [0.0001])
def test_a_client_above_its_share_of_the_node_s_time_is_throttled(
    served: RunningNode, percentage: float
) -> None:
    _set_quota(served, "request_percentage", percentage)
    with served.client(client_id="limited") as limited:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        assert max(limited.call(request, 3).throttle_time_ms for _ in range(3)) > 0


# Changes of topics. Two a second and eleven windows: 22 at once.

Outcome = tuple[list[int], int]  # the error code of each topic, and the throttle time


def _create(client: WireClient, names: list[str], version: int, partitions: int = 1) -> Outcome:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names
    ]
    answer = client.call(CreateTopicsRequest(topics=topics), version)
    return [row.error_code for row in answer.topics], answer.throttle_time_ms


def _grow(client: WireClient, names: list[str], version: int, partitions: int) -> Outcome:
    topics = [
        CreatePartitionsTopic(name=name, count=partitions, assignments=None) for name in names
    ]
    answer = client.call(CreatePartitionsRequest(topics=topics, timeout_ms=10_000), version)
    return [row.error_code for row in answer.results], answer.throttle_time_ms


def _delete(client: WireClient, names: list[str], version: int) -> Outcome:
    request = DeleteTopicsRequest(
        topic_names=names if version < 6 else [],
        topics=[DeleteTopicState(name=name) for name in names] if version >= 6 else [],
        timeout_ms=10_000,
    )
    answer = client.call(request, version)
    return [row.error_code for row in answer.responses], answer.throttle_time_ms


@pytest.fixture
def limited(served: RunningNode) -> WireClient:
    """A client that has used up its quota on changes, by 22 partitions of "used"."""
    served.create_topic("other", partitions=2)
    _set_quota(served, "controller_mutation_rate", 2.0)
    client = served.client(client_id="limited")
    assert _create(client, ["used"], 7, partitions=22) == ([0], 0)
    return client


def test_a_change_above_the_quota_is_refused_topic_by_topic(
    served: RunningNode, limited: WireClient
) -> None:
    # Nothing is overdrawn yet, so the first may be of any size; the second may not be at all.
    codes, throttle_ms = _create(limited, ["a", "b"], 6, partitions=2)
    assert codes == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert 0 < throttle_ms <= 1000
    names = served.call(lambda: set(served.node.image.topics_by_name))
    assert {"used", "a"} <= names
    assert "b" not in names
    # Not read from meanwhile, and then it may go on. Others are not bound by it.
    with served.client() as free:
        assert _create(free, ["c"], 6) == ([0], 0)
    began = time.monotonic()
    assert _create(limited, ["b"], 7) == ([0], 0)
    assert time.monotonic() - began > throttle_ms / 1000 - 0.3


def test_partitions_count_when_they_are_added_and_when_they_go(limited: WireClient) -> None:
    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    codes, throttle_ms = _grow(limited, ["used", "other"], 3, 24)
    assert codes == [0, refused]
    assert 0 < throttle_ms <= 1000
    codes, throttle_ms = _delete(limited, ["other", "used"], 6)
    assert codes == [0, refused]
    assert throttle_ms > 0


def test_topics_that_come_into_being_unasked_count_for_the_client(
    served: RunningNode, limited: WireClient
) -> None:
    """The client does not know the quota here: it asks again for what is unknown."""
    names = [f"auto-{number}" for number in range(3)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    codes = [row.error_code for row in limited.call(request, 12).topics]
    assert codes == [0, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2]
    with served.client() as free:
        assert [row.error_code for row in free.call(request, 12).topics] == [0, 0, 0]


@pytest.mark.parametrize("version", [2, 5])
def test_an_older_client_is_served_and_not_read_from_after_it(
    served: RunningNode, limited: WireClient, version: int
) -> None:
    codes, throttle_ms = _create(limited, ["a", "b"], version)
    assert codes == [0, 0]
    assert 500 < throttle_ms <= 1000
    assert {"a", "b"} <= served.call(lambda: set(served.node.image.topics_by_name))
    began = time.monotonic()
    codes, more_ms = _grow(limited, ["a"], 2, 2)
    assert time.monotonic() - began > throttle_ms / 1000 - 0.3
    assert (codes, more_ms > 0) == ([0], True)
    assert _delete(limited, ["a", "b"], 4)[0] == [0, 0]


def test_what_is_only_validated_or_fails_does_not_count(limited: WireClient) -> None:
    topic = CreatableTopic(name="a", num_partitions=1000, replication_factor=1)
    for _ in range(2):
        answer = limited.call(CreateTopicsRequest(topics=[topic], validate_only=True), 7)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)
        assert _create(limited, ["used"], 7, 1000) == ([ErrorCode.TOPIC_ALREADY_EXISTS], 0)
    assert _create(limited, ["a"], 7) == ([0], 0)


# Connections


def test_an_address_that_connects_too_often_is_kept_waiting_and_refused(
    served: RunningNode,
) -> None:
    with served.client() as before:
        _set_quota(served, "connection_creation_rate", 1.0, "ip", "127.0.0.1")
        accepted = [served.client() for _ in range(10)]
        for client in accepted:
            assert client.call(ApiVersionsRequest(), 0).error_code == 0
        began = time.monotonic()
        with served.client() as refused, pytest.raises((ConnectionEnded, OSError)):
            refused.call(ApiVersionsRequest(), 0)
        assert time.monotonic() - began > 0.5
        # Who is connected stays so.
        assert before.call(ApiVersionsRequest(), 0).error_code == 0
        assert served.call(lambda: served.node.metrics.connections_refused) == 1
        assert not served.call(lambda: served.node.has_quotas)


def test_the_quota_of_another_address_binds_nobody_else(served: RunningNode) -> None:
    _set_quota(served, "connection_creation_rate", 1.0, "ip", "10.0.0.1")
    for _ in range(15):
        with served.client() as client:
            assert client.call(ApiVersionsRequest(), 0).error_code == 0


def test_connections_that_are_kept_waiting_do_not_keep_a_node_from_stopping(
    served: RunningNode,
) -> None:
    _set_quota(served, "connection_creation_rate", 1.0, "ip", None)
    waiting = [served.client() for _ in range(15)]
    served.stop()
    for client in waiting:
        client.close()
