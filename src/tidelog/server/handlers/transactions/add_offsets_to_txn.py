"""AddOffsetsToTxn: the offsets of a group take part in a transaction."""

from __future__ import annotations

from collections.abc import Callable
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
from tidelog.server.answers import answer_when_done
from tidelog.server.coordination.internal_topics import ensure_internal_topic

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.ADD_OFFSETS_TO_TXN
VERSIONS = (0, 4)
REQUEST = AddOffsetsToTxnRequest

_PRODUCER_FENCED_FROM = 2


def handle(
    node: Node, request: Request, body: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Deferred:
    """What joins is the partition of `__consumer_offsets` that has the group."""

    def begin(done: Callable[[AddOffsetsToTxnResponse], None]) -> None:
        def added(code: ErrorCode) -> None:
            if code is ErrorCode.PRODUCER_FENCED and request.version < _PRODUCER_FENCED_FROM:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            done(AddOffsetsToTxnResponse(error_code=code))

        def with_topic(ready: Promise[None]) -> None:
            error = ready.error
            if isinstance(error, ApiError):
                added(error.code)
                return
            index = node.groups.index_of(body.group_id)
            node.transactions.add_partitions(
                body.transactional_id,
                body.producer_id,
                body.producer_epoch,
                [TopicPartition(CONSUMER_OFFSETS_TOPIC, index)],
                1,
                added,
            )

        ensure_internal_topic(node, CONSUMER_OFFSETS_TOPIC).when_done(with_topic)

    return answer_when_done(request, begin)


def error_response(body: AddOffsetsToTxnRequest, error: ApiError) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error.code)
