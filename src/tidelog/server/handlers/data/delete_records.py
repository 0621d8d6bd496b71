"""DeleteRecords: everything before an offset goes; -1 stands for the high watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.topic_names import is_internal
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, Refusal, topic_names
from tidelog.server.partition_lookup import hosted_partition

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DELETE_RECORDS
VERSIONS = (0, 2)
REQUEST = DeleteRecordsRequest
NEEDS = (Need(AclOperation.DELETE, ResourceType.TOPIC, topic_names, Refusal.ROW),)

_NO_LOW_WATERMARK = -1


def handle(node: Node, request: Request, body: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_row(node, topic.name, each) for each in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def error_response(body: DeleteRecordsRequest, error: ApiError) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_error_row(each, error) for each in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _row(node: Node, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        partition = hosted_partition(node, topic, asked.partition_index)
        if is_internal(topic):
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Cannot delete records of the internal topic {topic}",
            )
        low_watermark = partition.delete_records(asked.offset)
    except ApiError as error:
        return _error_row(asked, error)
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark
    )


def _error_row(asked: DeleteRecordsPartition, error: ApiError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index,
        low_watermark=_NO_LOW_WATERMARK,
        error_code=error.code,
    )
