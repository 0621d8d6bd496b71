"""TxnOffsetCommit: offsets that become a group's when the transaction commits.

From version 5 (transactions v2) the group's partition joins the transaction by this call; before,
AddOffsetsToTxn has to have said so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.coordinator.group_shard import GroupShard
from tidelog.coordinator.shard import Outcome, append_refusal
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.server.answers import answer_when_done
from tidelog.server.coordination.group_coordinator import client_context
from tidelog.server.coordination.internal_topics import ensure_internal_topic
from tidelog.server.existing_partitions import merged, take_unknown

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = (0, 5)
REQUEST = TxnOffsetCommitRequest

_IMPLICIT_ADD_FROM = 5
_ABORTABLE_FROM = 4


def handle(
    node: Node, request: Request, body: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Deferred:
    if not body.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    by_name = node.image.topics_by_name
    body.topics, unknown = take_unknown(body.topics, lambda topic: by_name.get(topic.name))
    refused = [
        _error_topic(topic, indexes, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for topic, indexes in unknown
    ]
    if not body.topics:
        return TxnOffsetCommitResponse(topics=refused)
    client = client_context(request)

    def begin(done: Callable[[TxnOffsetCommitResponse], None]) -> None:
        def fail(error: ApiError) -> None:
            response = error_response(body, error)
            response.topics = merged(refused, response.topics)
            done(response)

        def committed(response: TxnOffsetCommitResponse | None, error: ApiError | None) -> None:
            if error is not None:
                fail(error)
                return
            assert response is not None
            response.topics = merged(refused, response.topics)
            done(response)

        def commit(shard: GroupShard, now_ms: int) -> Outcome[TxnOffsetCommitResponse]:
            return shard.offsets.commit_in_transaction(client, body, now_ms)

        def verified(errors: dict[TopicPartition, ErrorCode]) -> None:
            for code in errors.values():
                fail(ApiError(append_refusal(ApiError(code))))
                return
            node.groups.submit(body.group_id, commit, committed)

        def with_topic(ready: Promise[None]) -> None:
            error = ready.error
            if isinstance(error, ApiError):
                fail(error)
                return
            index = node.groups.index_of(body.group_id)
            node.transactions.appends.verify(
                body.transactional_id,
                body.producer_id,
                body.producer_epoch,
                [TopicPartition(CONSUMER_OFFSETS_TOPIC, index)],
                request.version >= _IMPLICIT_ADD_FROM,
                verified,
                knows_abortable=request.version >= _ABORTABLE_FROM,
            )

        ensure_internal_topic(node, CONSUMER_OFFSETS_TOPIC).when_done(with_topic)

    return answer_when_done(request, begin)


def error_response(body: TxnOffsetCommitRequest, error: ApiError) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            _error_topic(topic, [row.partition_index for row in topic.partitions], error.code)
            for topic in body.topics
        ]
    )


def _error_topic(
    topic: TxnOffsetCommitRequestTopic, indexes: list[int], code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
            for index in indexes
        ],
    )
