"""DescribeLogDirs: the log directories of this node, their space, and what each log takes of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS = (1, 5)
REQUEST = DescribeLogDirsRequest
NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER, cluster),)

_TopicRows = dict[str, list[DescribeLogDirsPartition]]


def handle(node: Node, request: Request, body: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Null topics are all topics. Directories are told whatever topics are asked for."""
    asked: set[TopicPartition] | None = None
    if body.topics is not None:
        asked = {
            TopicPartition(topic.topic, partition)
            for topic in body.topics
            for partition in topic.partitions
        }
    rows_by_directory: dict[Path, _TopicRows] = {}
    for topic_partition, log in node.store.logs.items():
        if asked is None or topic_partition in asked:
            rows = rows_by_directory.setdefault(log.directory.parent, {})
            rows.setdefault(topic_partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=topic_partition.partition, partition_size=log.size_bytes
                )
            )
    for topic_partition, move in node.store.moves.items():
        if asked is None or topic_partition in asked:
            rows = rows_by_directory.setdefault(move.destination.directory.path, {})
            rows.setdefault(topic_partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=topic_partition.partition,
                    partition_size=move.future.size_bytes,
                    offset_lag=move.offset_lag,
                    is_future_key=True,
                )
            )
    response = DescribeLogDirsResponse()
    for directory in node.store.directories:
        result = DescribeLogDirsResult(log_dir=str(directory.path.absolute()))
        if directory.online:
            result.total_bytes = directory.total_bytes
            result.usable_bytes = directory.usable_bytes
            result.topics = [
                DescribeLogDirsTopic(name=name, partitions=partitions)
                for name, partitions in rows_by_directory.get(directory.path, {}).items()
            ]
        else:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        response.results.append(result)
    return response


def error_response(body: DescribeLogDirsRequest, error: ApiError) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=error.code)
