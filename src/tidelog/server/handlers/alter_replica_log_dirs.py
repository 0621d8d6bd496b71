"""AlterReplicaLogDirs: replicas stay in the directory they were made in.

A request for the directory that a replica is in already succeeds; a move to another one is
refused.
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
from tidelog.server.partition_lookup import hosted_partition

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.ALTER_REPLICA_LOG_DIRS
VERSIONS = (1, 2)
REQUEST = AlterReplicaLogDirsRequest


def handle(
    node: Node, request: Request, body: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    errors: dict[str, dict[int, ErrorCode]] = {}
    for directory in body.dirs:
        for topic in directory.topics:
            for partition in topic.partitions:
                errors.setdefault(topic.name, {})[partition] = _check(
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


def _check(node: Node, path: str, topic: str, partition: int) -> ErrorCode:
    destination = Path(path)
    for directory in node.store.directories:
        if directory.path.absolute() == destination:
            if not directory.online:
                return ErrorCode.KAFKA_STORAGE_ERROR
            break
    else:
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        log = hosted_partition(node, topic, partition).log
    except ApiError as error:
        return error.code
    if log.directory.absolute().parent != destination:
        return ErrorCode.INVALID_REQUEST
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
