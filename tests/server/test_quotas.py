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


def _set_quota(node: RunningNode, key: str, value: float) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name="limited")],
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
