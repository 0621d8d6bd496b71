"""InitProducerId: the id and epoch of an idempotent or transactional producer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, Unnamed, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.INIT_PRODUCER_ID
VERSIONS = (0, 5)  # Kafka 4.3 calls version 6 (two-phase commit) unstable and does not offer it
REQUEST = InitProducerIdRequest

_PRODUCER_FENCED_FROM = 4
_NO_EPOCH = -1


def _transactional_id(body: InitProducerIdRequest, version: int) -> Iterable[str]:
    return () if body.transactional_id is None else (body.transactional_id,)


def _two_phase_id(body: InitProducerIdRequest, version: int) -> Iterable[str]:
    return _transactional_id(body, version) if body.enable_2pc else ()


def _cluster_of_idempotent(body: InitProducerIdRequest, version: int) -> Iterable[str]:
    return cluster(body, version) if body.transactional_id is None else ()


NEEDS = (
    Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, _transactional_id),
    Need(AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, _two_phase_id),
    Need(
        AclOperation.IDEMPOTENT_WRITE,
        ResourceType.CLUSTER,
        _cluster_of_idempotent,
        unless=Need(AclOperation.WRITE, ResourceType.TOPIC, Unnamed.ANY_ONE),
    ),
)


def handle(
    node: Node, request: Request, body: InitProducerIdRequest
) -> Promise[InitProducerIdResponse]:
    """Without a transactional id every request gets a new producer id."""
    transactions = node.transactions

    def no_ids(error: ApiError) -> None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))

    def init(_: None) -> Promise[InitProducerIdResponse]:
        if body.transactional_id is None:
            producer_id = transactions.producer_ids.take()
            return Promise.of(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
        return transactions.submit(
            body.transactional_id, lambda shard, now_ms: shard.init_producer_id(body, now_ms)
        )

    def as_known(response: InitProducerIdResponse) -> InitProducerIdResponse:
        is_fenced = response.error_code == ErrorCode.PRODUCER_FENCED
        if is_fenced and request.version < _PRODUCER_FENCED_FROM:
            response.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
        return response

    made = transactions.producer_ids.ensure().recover(ApiError, no_ids).then_wait(init)
    return made.recover(ApiError, partial(error_response, body)).then(as_known)


def error_response(body: InitProducerIdRequest, error: ApiError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_epoch=_NO_EPOCH)
