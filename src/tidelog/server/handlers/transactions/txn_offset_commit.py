"""TxnOffsetCommit: offsets that become a group's when the transaction commits.

From version 5 (transactions v2) the group's partition joins the transaction by this call; before,
AddOffsetsToTxn has to have said so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.coordinator.shard import append_refusal
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
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.coordination.group_coordinator import client_context
from tidelog.server.coordination.internal_topics import ensure_internal_topic
from tidelog.server.existing_partitions import merged, take_unknown
from tidelog.server.needs import Need, Refusal, group_id, topic_names, transactional_id

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = (0, 5)
REQUEST = TxnOffsetCommitRequest
NEEDS = (
    Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id),
    Need(AclOperation.READ, ResourceType.GROUP, group_id),
    Need(AclOperation.READ, ResourceType.TOPIC, topic_names, Refusal.ROW),
)

_IMPLICIT_ADD_FROM = 5
_ABORTABLE_FROM = 4


def handle(
    node: Node, request: Request, body: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Promise[TxnOffsetCommitResponse]:
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

    def verify(_: None) -> Promise[dict[TopicPartition, ErrorCode]]:
        index = node.groups.index_of(body.group_id)
        # First of all: whoever does not coordinate the group must add nothing to the transaction.
        node.groups.host.check(index)
        return node.transactions.appends.verify(
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            [TopicPartition(CONSUMER_OFFSETS_TOPIC, index)],
            request.version >= _IMPLICIT_ADD_FROM,
            knows_abortable=request.version >= _ABORTABLE_FROM,
        )

    def commit(errors: dict[TopicPartition, ErrorCode]) -> Promise[TxnOffsetCommitResponse]:
        for code in errors.values():
            raise ApiError(append_refusal(ApiError(code)))
        return node.groups.submit(
            body.group_id,
            lambda shard, now_ms: shard.offsets.commit_in_transaction(client, body, now_ms),
        )

    def with_refused(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
        response.topics = merged(refused, response.topics)
        return response

    verified = ensure_internal_topic(node, CONSUMER_OFFSETS_TOPIC).then_wait(verify)
    committed = verified.then_wait(commit).recover(ApiError, partial(error_response, body))
    return committed.then(with_refused)


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
