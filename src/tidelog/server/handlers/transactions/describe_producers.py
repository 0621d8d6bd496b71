"""DescribeProducers: the producers a partition remembers, and their open transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, Refusal, topic_names
from tidelog.server.partition_lookup import hosted_partition

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DESCRIBE_PRODUCERS
VERSIONS = (0, 0)
REQUEST = DescribeProducersRequest
NEEDS = (Need(AclOperation.READ, ResourceType.TOPIC, topic_names, Refusal.ROW),)


def handle(
    node: Node, request: Request, body: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(node, topic.name, each) for each in topic.partition_indexes],
            )
            for topic in body.topics
        ]
    )


def error_response(body: DescribeProducersRequest, error: ApiError) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_failed(each, error) for each in topic.partition_indexes],
            )
            for topic in body.topics
        ]
    )


def _describe(node: Node, topic: str, index: int) -> PartitionResponse:
    try:
        # Any replica tells what it knows: tools compare them.
        partition = hosted_partition(node, topic, index)
    except ApiError as error:
        return _failed(index, error)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer in partition.log.producers.active()
        ],
    )


def _failed(index: int, error: ApiError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message or None
    )
