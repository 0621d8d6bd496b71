"""AddOffsetsToTxn: the offsets of a group take part in a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.coordination.internal_topics import ensure_internal_topic
from tidelog.server.needs import Need, group_id, transactional_id

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.ADD_OFFSETS_TO_TXN
VERSIONS = (0, 4)
REQUEST = AddOffsetsToTxnRequest
NEEDS = (
    Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id),
    Need(AclOperation.READ, ResourceType.GROUP, group_id),
)

_PRODUCER_FENCED_FROM = 2


def handle(
    node: Node, request: Request, body: AddOffsetsToTxnRequest
) -> Promise[AddOffsetsToTxnResponse]:
    """What joins is the partition of `__consumer_offsets` that has the group."""

    def add(_: None) -> Promise[ErrorCode]:
        index = node.groups.index_of(body.group_id)
        return node.transactions.add_partitions(
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            [TopicPartition(CONSUMER_OFFSETS_TOPIC, index)],
            1,
        )

    added = ensure_internal_topic(node, CONSUMER_OFFSETS_TOPIC).then_wait(add)
    return added.then(lambda _: AddOffsetsToTxnResponse()).recover(
        ApiError, lambda error: _refusal(error, request.version)
    )


def error_response(body: AddOffsetsToTxnRequest, error: ApiError) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error.code)


def _refusal(error: ApiError, version: int) -> AddOffsetsToTxnResponse:
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED and version < _PRODUCER_FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)
