"""AddPartitionsToTxn: partitions take part in a transaction before it writes to them.

Up to version 3 a producer speaks for itself; from version 4 a broker speaks for several, and may
only want to know whether the partitions are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.coordinator.shard import CoordinatorResult
from tidelog.coordinator.transaction_shard import TransactionShard
from tidelog.promise import Promise, gather
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, Refusal, cluster

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import MetadataImage
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS = (0, 5)
REQUEST = AddPartitionsToTxnRequest

_PRODUCER_FENCED_FROM = 2
_BATCHED_FROM = 4
_ABORTABLE_FROM = 5

Codes = dict[TopicPartition, ErrorCode]


def _transactional_id(body: AddPartitionsToTxnRequest, version: int) -> Iterable[str]:
    return (body.v3_and_below_transactional_id,) if version < _BATCHED_FROM else ()


def _topics(body: AddPartitionsToTxnRequest, version: int) -> Iterable[str]:
    return [topic.name for topic in body.v3_and_below_topics] if version < _BATCHED_FROM else ()


def _cluster_of_broker(body: AddPartitionsToTxnRequest, version: int) -> Iterable[str]:
    return cluster(body, version) if version >= _BATCHED_FROM else ()


NEEDS = (
    Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, _transactional_id),
    Need(AclOperation.WRITE, ResourceType.TOPIC, _topics, Refusal.ROW),
    Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, _cluster_of_broker),
)


def handle(
    node: Node, request: Request, body: AddPartitionsToTxnRequest
) -> Promise[AddPartitionsToTxnResponse]:
    version = request.version
    if version < _BATCHED_FROM:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=body.v3_and_below_transactional_id,
                producer_id=body.v3_and_below_producer_id,
                producer_epoch=body.v3_and_below_producer_epoch,
                topics=body.v3_and_below_topics,
            )
        ]
    else:
        transactions = body.transactions

    def add(transaction: AddPartitionsToTxnTransaction) -> Promise[AddPartitionsToTxnResult]:
        return _carry_out(node, transaction, version).then(
            lambda codes: AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=_topic_results(transaction.topics, codes, version),
            )
        )

    return gather([add(each) for each in transactions]).then(
        lambda results: _response(results, version)
    )


def error_response(body: AddPartitionsToTxnRequest, error: ApiError) -> AddPartitionsToTxnResponse:
    codes = {
        partition: error.code
        for topic in body.v3_and_below_topics
        for partition in _partitions_of(topic)
    }
    return AddPartitionsToTxnResponse(
        error_code=error.code,
        results_by_topic_v3_and_below=_topic_results(body.v3_and_below_topics, codes, 0),
    )


def _carry_out(
    node: Node, transaction: AddPartitionsToTxnTransaction, version: int
) -> Promise[Codes]:
    partitions = [each for topic in transaction.topics for each in _partitions_of(topic)]
    missing = [each for each in partitions if not _exists(node.image, each)]
    if missing:
        codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        codes.update(dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return Promise.of(codes)

    def verify(shard: TransactionShard, _now_ms: int) -> CoordinatorResult[Codes]:
        return shard.verify_partitions(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions,
        )

    if transaction.verify_only:
        done = node.transactions.submit(transaction.transactional_id, verify)
    else:
        done = node.transactions.add_partitions(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions,
            2 if version >= _ABORTABLE_FROM else 1,
            waits=version < _BATCHED_FROM,
        ).then(lambda code: dict.fromkeys(partitions, code))
    return done.recover(ApiError, lambda error: dict.fromkeys(partitions, error.code))


def _partitions_of(topic: AddPartitionsToTxnTopic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for index in topic.partitions]


def _exists(image: MetadataImage, partition: TopicPartition) -> bool:
    return image.partition(partition.topic, partition.partition) is not None


def _topic_results(
    topics: list[AddPartitionsToTxnTopic], codes: Codes, version: int
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition.partition,
                    partition_error_code=_known(codes[partition], version),
                )
                for partition in _partitions_of(topic)
            ],
        )
        for topic in topics
    ]


def _known(code: ErrorCode, version: int) -> ErrorCode:
    """The code under the name that this version has for it."""
    if code is ErrorCode.PRODUCER_FENCED and version < _PRODUCER_FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _response(results: list[AddPartitionsToTxnResult], version: int) -> AddPartitionsToTxnResponse:
    if version < _BATCHED_FROM:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)
    return AddPartitionsToTxnResponse(results_by_transaction=results)
