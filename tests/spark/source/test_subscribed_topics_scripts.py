"""SubscribedTopics against a peer that refuses as Kafka may, but no broker does on demand."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.client.cluster.scripted_broker import Answer, ScriptedBroker
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.spark.errors import SparkError
from tidelog.spark.source.options import parse_source_options
from tidelog.spark.source.subscribed_topics import SubscribedTopics

END = 42


@dataclass
class Script:
    """The leader of orders-0, which refuses with each of some codes before it answers."""

    refusals: list[ErrorCode]
    port: int = 0
    asked: list[ListOffsetsRequest] = field(default_factory=list)
    client_ids: set[str | None] = field(default_factory=set)

    def metadata(self, _: MetadataRequest) -> MetadataResponse:
        partition = MetadataResponsePartition(partition_index=0, leader_id=0)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=0, host="127.0.0.1", port=self.port)],
            topics=[MetadataResponseTopic(name="orders", partitions=[partition])],
        )

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        self.asked.append(request)
        code = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        row = ListOffsetsPartitionResponse(partition_index=0, offset=END, error_code=code)
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name="orders", partitions=[row])]
        )

    def latest(self, **more: str) -> dict[TopicPartition, int]:
        answers: dict[ApiKey, Answer] = {
            ApiKey.METADATA: self.metadata,
            ApiKey.LIST_OFFSETS: self.list_offsets,
        }
        versions = {ApiKey.METADATA: (0, 13), ApiKey.LIST_OFFSETS: (1, 11)}
        with ScriptedBroker(answers, versions) as peer:
            self.port, self.client_ids = peer.port, peer.client_ids
            options = {"kafka.bootstrap.servers": peer.bootstrap, "subscribe": "orders"}
            return SubscribedTopics(parse_source_options({**options, **more})).latest()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
    ],
)
def test_retriable_errors_are_retried(code: ErrorCode) -> None:
    script = Script([code, code])
    assert script.latest() == {TopicPartition("orders", 0): END}
    assert len(script.asked) == 3


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_other_errors_fail_at_once(code: ErrorCode) -> None:
    script = Script([code])
    with pytest.raises(SparkError, match=f"orders-0: {code.name}"):
        script.latest()
    assert len(script.asked) == 1


def test_what_takes_longer_is_not_asked_for_without_a_pause() -> None:
    script = Script([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10_000)
    settings = {"fetchOffset.retryIntervalMs": "0", "kafka.default.api.timeout.ms": "300"}
    with pytest.raises(SparkError, match="no offsets from"):
        script.latest(**settings)
    assert 2 <= len(script.asked) <= 10


@pytest.mark.parametrize(
    ("options", "client_id"),
    [
        ({}, "tidelog-spark"),
        ({"groupIdPrefix": "mine"}, "mine"),
        ({"groupIdPrefix": "mine", "kafka.client.id": "other"}, "other"),
    ],
)
def test_brokers_see_the_client_id(options: dict[str, str], client_id: str) -> None:
    script = Script([])
    script.latest(**options)
    assert script.client_ids == {client_id}
