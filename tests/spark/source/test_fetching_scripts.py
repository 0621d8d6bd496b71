"""read_range against peers that answer as Kafka may, but no broker does on demand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random

import pytest

from tests.client.cluster.scripted_broker import Answer, ScriptedBroker
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
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
from tidelog.protocol.records import Record, encode_batch
from tidelog.protocol.uuids import ZERO_UUID, random_uuid
from tidelog.spark.errors import SparkError
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.source.fetching import FetchSettings, read_range

TOPIC_ID = random_uuid(Random())
NEW = {ApiKey.METADATA: (0, 13), ApiKey.FETCH: (4, 18), ApiKey.LIST_OFFSETS: (1, 11)}
# Before topics had ids, and before there was tiered storage.
OLD = {ApiKey.METADATA: (0, 9), ApiKey.FETCH: (4, 12), ApiKey.LIST_OFFSETS: (1, 5)}

Reply = Callable[[int], PartitionData | None]


@dataclass
class Script:
    """What the brokers of a cluster say of the partition orders-0."""

    replies: list[Reply]
    earliest_local: int = 0
    leaders: list[int] = field(default_factory=lambda: [0])
    ports: list[int] = field(default_factory=list)
    asked: list[FetchRequest] = field(default_factory=list)
    has_ids: bool = True

    def metadata(self, _: MetadataRequest) -> MetadataResponse:
        leader = self.leaders.pop(0) if len(self.leaders) > 1 else self.leaders[0]
        brokers = [
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port)
            for node, port in enumerate(self.ports)
        ]
        partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=7)
        topic = MetadataResponseTopic(
            name="orders",
            topic_id=TOPIC_ID if self.has_ids else ZERO_UUID,
            partitions=[partition],
        )
        return MetadataResponse(brokers=brokers, topics=[topic])

    def fetch(self, request: FetchRequest) -> FetchResponse:
        self.asked.append(request)
        (topic,) = request.topics
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        row = reply(topic.partitions[0].fetch_offset)
        if row is None:
            return FetchResponse(throttle_time_ms=10)
        rows = FetchableTopicResponse(topic="orders", topic_id=TOPIC_ID, partitions=[row])
        return FetchResponse(responses=[rows])

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        assert request.topics[0].partitions[0].timestamp == -4
        row = ListOffsetsPartitionResponse(partition_index=0, offset=self.earliest_local)
        rows = ListOffsetsTopicResponse(name="orders", partitions=[row])
        return ListOffsetsResponse(topics=[rows])

    def read(
        self,
        end: int,
        *,
        brokers: int = 1,
        versions: dict[ApiKey, tuple[int, int]] = NEW,
        timeout_s: float = 60.0,
    ) -> list[int]:
        """The offsets of 0 to `end` as they are read."""
        answers: dict[ApiKey, Answer] = {
            ApiKey.METADATA: self.metadata,
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: self.list_offsets,
        }
        with ExitStack() as stack:
            peers = [stack.enter_context(ScriptedBroker(answers, versions)) for _ in range(brokers)]
            self.ports = [peer.port for peer in peers]
            settings = FetchSettings(peers[0].bootstrap, timeout_s=timeout_s)
            batches = list(read_range(settings, OffsetRange("orders", 0, 0, end)))
        return list(itertools.chain(*(batch["offset"].to_pylist() for batch in batches)))


def records(at: int) -> PartitionData:
    """Two records from the offset that was asked for."""
    batch = encode_batch([Record(at + each, 0, None, b"x") for each in range(2)], base_offset=at)
    return PartitionData(high_watermark=100, last_stable_offset=100, records=bytes(batch))


def nothing(_: int) -> PartitionData:
    return PartitionData(high_watermark=100, last_stable_offset=100, records=b"")


def throttled(_: int) -> None:
    return None


def refused(code: int) -> Reply:
    return lambda _: PartitionData(error_code=code)


def test_a_range_ends_where_compaction_left_nothing() -> None:
    script = Script([records, nothing])
    assert script.read(10) == [0, 1]
    # Only the first of them waits for records.
    assert [each.max_wait_ms for each in script.asked[1:]] == [500, 0, 0]


def test_old_brokers_have_no_tiers_and_no_topic_ids() -> None:
    script = Script([records, records, nothing], has_ids=False)
    assert script.read(10, versions=OLD) == [0, 1, 2, 3]
    assert {each.topics[0].topic for each in script.asked} == {"orders"}


def test_slow_tiered_storage_is_waited_for() -> None:
    script = Script([records, *[nothing] * 5, records], earliest_local=50)
    assert script.read(4) == [0, 1, 2, 3]


def test_tiered_storage_that_gives_nothing_fails_in_time() -> None:
    script = Script([records, nothing], earliest_local=50)
    with pytest.raises(SparkError, match=r"orders-0: offset 2 .* tiered storage does not give it"):
        script.read(10, timeout_s=0.5)


def test_a_client_above_its_quota_asks_again() -> None:
    assert Script([throttled, records, throttled, throttled, records]).read(4) == [0, 1, 2, 3]
    with pytest.raises(SparkError, match="the broker gives no answer"):
        Script([throttled]).read(4, timeout_s=0.5)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_the_new_leader_is_found(code: ErrorCode) -> None:
    script = Script([records, refused(code), records], leaders=[0, 1])
    assert script.read(4, brokers=2) == [0, 1, 2, 3]


def test_a_partition_without_a_leader_is_waited_for() -> None:
    script = Script([records], leaders=[-1, -1, 0])
    assert script.read(2) == [0, 1]


@pytest.mark.parametrize(
    ("code", "name"),
    [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED"), (999, "ERROR_999")],
)
def test_other_errors_fail_at_once(code: int, name: str) -> None:
    script = Script([records, refused(code)])
    with pytest.raises(SparkError, match=f"orders-0 cannot be read from offset 2: {name}"):
        script.read(4)
    assert len(script.asked) == 2


def test_an_answer_without_what_was_asked_for_is_refused() -> None:
    with pytest.raises(SparkError, match=r"a fetch of offset 2 brought .* without a whole batch"):
        Script([lambda _: records(0)]).read(4)
