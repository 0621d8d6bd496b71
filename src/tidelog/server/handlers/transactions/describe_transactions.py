"""DescribeTransactions: state, producer and partitions of transactions by id."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinator.shard import CoordinatorResult
from tidelog.coordinator.transaction import Transaction
from tidelog.promise import Promise, gather
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, Refusal, Unnamed

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS = (0, 0)
REQUEST = DescribeTransactionsRequest


def _transactional_ids(body: DescribeTransactionsRequest, version: int) -> Iterable[str]:
    return body.transactional_ids


NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, _transactional_ids, Refusal.ROW),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, Unnamed.IN_ANSWER, Refusal.OMISSION),
)


def handle(
    node: Node, request: Request, body: DescribeTransactionsRequest
) -> Promise[DescribeTransactionsResponse]:
    described = gather([_describe(node, each) for each in body.transactional_ids])
    return described.then(lambda rows: DescribeTransactionsResponse(transaction_states=rows))


def error_response(
    body: DescribeTransactionsRequest, error: ApiError
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_failed(each, error) for each in body.transactional_ids]
    )


def _describe(node: Node, transactional_id: str) -> Promise[TransactionState]:
    if not node.transactions.host.partition_count():
        unknown = ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return Promise.of(_failed(transactional_id, unknown))
    described = node.transactions.submit(
        transactional_id,
        lambda shard, now_ms: CoordinatorResult(response=shard.describe(transactional_id)),
    )
    return described.then(_row).recover(ApiError, partial(_failed, transactional_id))


def _row(transaction: Transaction) -> TransactionState:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    return TransactionState(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.status.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )


def _failed(transactional_id: str, error: ApiError) -> TransactionState:
    return TransactionState(error_code=error.code, transactional_id=transactional_id)
