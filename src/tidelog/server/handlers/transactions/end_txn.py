"""EndTxn: a producer commits or aborts its transaction.

The answer leaves when the decision is durable; the markers follow. From version 5 it says under
which producer id and epoch the next transaction goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, transactional_id

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.END_TXN
VERSIONS = (0, 5)
REQUEST = EndTxnRequest
NEEDS = (Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id),)

_PRODUCER_FENCED_FROM = 2


def handle(node: Node, request: Request, body: EndTxnRequest) -> Promise[EndTxnResponse]:
    version = request.version

    def end(_: None) -> Promise[EndTxnResponse]:
        return node.transactions.submit(
            body.transactional_id,
            lambda shard, now_ms: shard.end_transaction(body, version, now_ms),
        )

    def refuse(error: ApiError) -> EndTxnResponse:
        if error.code is ErrorCode.PRODUCER_FENCED and version < _PRODUCER_FENCED_FROM:
            return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
        return error_response(body, error)

    # The end may need a new producer id; if there is none to be had, most ends need none.
    producer_ids = node.transactions.producer_ids.ensure().recover(ApiError, lambda _: None)
    return producer_ids.then_wait(end).recover(ApiError, refuse)


def error_response(body: EndTxnRequest, error: ApiError) -> EndTxnResponse:
    return EndTxnResponse(error_code=error.code)
