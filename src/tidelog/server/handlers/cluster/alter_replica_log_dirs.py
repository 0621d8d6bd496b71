"""AlterReplicaLogDirs: move replicas between the log directories of this node.

The answer tells that the moves have begun; DescribeLogDirs shows how far they are. A request for
the directory that a replica is in already ends a move of it that is under way.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.topic_partition import TopicPartition
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster
from tidelog.server.partition_lookup import hosted_partition

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.ALTER_REPLICA_LOG_DIRS
VERSIONS = (1, 2)
REQUEST = AlterReplicaLogDirsRequest
NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    errors: dict[str, dict[int, ErrorCode]] = {}
    for directory in body.dirs:
        for topic in directory.topics:
            for partition in topic.partitions:
                errors.setdefault(topic.name, {})[partition] = _move(
                    node, directory.path, topic.name, partition
                )
    return _response(errors)


def error_response(
    body: AlterReplicaLogDirsRequest, error: ApiError
) -> AlterReplicaLogDirsResponse:
    errors: dict[str, dict[int, ErrorCode]] = {}
    for directory in body.dirs:
        for topic in directory.topics:
            errors.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, error.code))
    return _response(errors)


def _move(node: Node, path: str, topic: str, partition: int) -> ErrorCode:
    try:
        if not any(directory.path == Path(path) for directory in node.store.directories):
            return ErrorCode.LOG_DIR_NOT_FOUND
        hosted_partition(node, topic, partition)
        node.store.move(TopicPartition(topic, partition), Path(path))
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def _response(errors: dict[str, dict[int, ErrorCode]]) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=error)
                    for partition, error in by_partition.items()
                ],
            )
            for topic, by_partition in errors.items()
        ]
    )
