"""ListTransactions: the transactions this node coordinates, filtered by state, producer, age
(version 1) and a pattern for the transactional id (version 2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from tidelog.coordinator.regex import InvalidRegex, Regex
from tidelog.coordinator.shard import CoordinatorResult
from tidelog.coordinator.transaction import STATUS_BY_LABEL, Transaction
from tidelog.coordinator.transaction_shard import TransactionShard
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, Refusal, Unnamed

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.LIST_TRANSACTIONS
VERSIONS = (0, 2)
REQUEST = ListTransactionsRequest
NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, Unnamed.IN_ANSWER, Refusal.OMISSION),
)

# Kafka has this state inside of its broker; clients may ask for it, nothing is ever in it here.
_KNOWN_STATES = frozenset(STATUS_BY_LABEL) | {"PrepareEpochFence"}


def handle(
    node: Node, request: Request, body: ListTransactionsRequest
) -> Promise[ListTransactionsResponse]:
    matches = _matcher(body.transactional_id_pattern)

    def select(shard: TransactionShard, now_ms: int) -> CoordinatorResult[list[Transaction]]:
        found = shard.select(
            now_ms,
            states=body.state_filters,
            producer_ids=body.producer_id_filters,
            duration_ms=body.duration_filter,
            matches=matches,
        )
        return CoordinatorResult(response=found)

    return node.transactions.host.submit_all(select).then(partial(_response, body))


def _response(
    body: ListTransactionsRequest, found: list[list[Transaction]]
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in body.state_filters if each not in _KNOWN_STATES],
        transaction_states=[
            TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.status.label,
            )
            for transaction in chain(*found)
        ],
    )


def error_response(body: ListTransactionsRequest, error: ApiError) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error.code)


def _matcher(pattern: str | None) -> Callable[[str], bool] | None:
    if not pattern:
        return None
    try:
        return Regex(pattern).matches
    except InvalidRegex as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
