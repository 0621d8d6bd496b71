"""InitProducerId: the id and epoch of an idempotent or transactional producer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.errors import TidelogError
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.answers import answer_when_done

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.INIT_PRODUCER_ID
VERSIONS = (0, 5)  # Kafka 4.3 calls version 6 (two-phase commit) unstable and does not offer it
REQUEST = InitProducerIdRequest

_PRODUCER_FENCED_FROM = 4
_NO_EPOCH = -1


def handle(
    node: Node, request: Request, body: InitProducerIdRequest
) -> InitProducerIdResponse | Deferred:
    """Without a transactional id every request gets a new producer id."""
    transactions = node.transactions

    def begin(done: Callable[[InitProducerIdResponse], None]) -> None:
        def answer(response: InitProducerIdResponse | None, error: ApiError | None) -> None:
            if error is not None:
                response = error_response(body, error)
            assert response is not None
            if (
                response.error_code == ErrorCode.PRODUCER_FENCED
                and request.version < _PRODUCER_FENCED_FROM
            ):
                response.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
            done(response)

        def with_ids(error: TidelogError | None) -> None:
            if error is not None:
                answer(None, ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
            elif body.transactional_id is None:
                producer_id = transactions.producer_ids.take()
                answer(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0), None)
            else:
                transactions.submit(
                    body.transactional_id,
                    lambda shard, now_ms: shard.init_producer_id(body, now_ms),
                    answer,
                )

        transactions.producer_ids.ensure().when_done(lambda ready: with_ids(ready.error))

    return answer_when_done(request, begin)


def error_response(body: InitProducerIdRequest, error: ApiError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_epoch=_NO_EPOCH)
