"""EndTxn: a producer commits or aborts its transaction.

The answer leaves when the decision is durable; the markers follow. From version 5 it says under
which producer id and epoch the next transaction goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.answers import answer_when_done

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.END_TXN
VERSIONS = (0, 5)
REQUEST = EndTxnRequest

_PRODUCER_FENCED_FROM = 2


def handle(node: Node, request: Request, body: EndTxnRequest) -> EndTxnResponse | Deferred:
    version = request.version

    def begin(done: Callable[[EndTxnResponse], None]) -> None:
        def ended(response: EndTxnResponse | None, error: ApiError | None) -> None:
            if error is not None:
                if error.code is ErrorCode.PRODUCER_FENCED and version < _PRODUCER_FENCED_FROM:
                    error = ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
                response = error_response(body, error)
            assert response is not None
            done(response)

        def with_ids(_: object) -> None:
            # The end may need a new producer id; without any, most ends need none.
            node.transactions.submit(
                body.transactional_id,
                lambda shard, now_ms: shard.end_transaction(body, version, now_ms),
                ended,
            )

        node.transactions.producer_ids.ensure().when_done(with_ids)

    return answer_when_done(request, begin)


def error_response(body: EndTxnRequest, error: ApiError) -> EndTxnResponse:
    return EndTxnResponse(error_code=error.code)
