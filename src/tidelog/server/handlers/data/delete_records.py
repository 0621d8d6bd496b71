"""DeleteRecords: everything before an offset goes; -1 stands for the high watermark.

The leader's log starts there at once. The answer comes when those of all live replicas do, or with
REQUEST_TIMED_OUT for the partitions where they do not in time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.topic_names import is_internal
from tidelog.promise import Promise
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
    from tidelog.cluster.replication.partition import Partition
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DELETE_RECORDS
VERSIONS = (0, 2)
REQUEST = DeleteRecordsRequest
NEEDS = (Need(AclOperation.DELETE, ResourceType.TOPIC, topic_names, Refusal.ROW),)

_NO_LOW_WATERMARK = -1


def handle(
    node: Node, request: Request, body: DeleteRecordsRequest
) -> DeleteRecordsResponse | Promise[DeleteRecordsResponse]:
    response = DeleteRecordsResponse()
    waiting: list[_Deletion] = []
    for topic in body.topics:
        rows = []
        for each in topic.partitions:
            row, deletion = _delete(node, topic.name, each)
            rows.append(row)
            if deletion is not None:
                waiting.append(deletion)
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=rows))
    if not waiting:
        return response
    answer: Promise[DeleteRecordsResponse] = Promise()
    _DelayedDeletions(node, waiting, lambda: answer.resolve(response), body.timeout_ms / 1000)
    return answer


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


class _Deletion(NamedTuple):
    """A row whose replicas do not start at `offset` yet."""

    partition: Partition
    leader_epoch: int
    offset: int
    row: DeleteRecordsPartitionResult


class _DelayedDeletions:
    """Waits for the replicas of some partitions; `done` is called once, when all rows are final."""

    def __init__(
        self, node: Node, deletions: list[_Deletion], done: Callable[[], None], timeout_s: float
    ) -> None:
        self._node = node
        self._waiting = deletions
        self._done = done
        self._timer = node.reactor.call_later(timeout_s, self._time_is_up)
        for deletion in deletions:
            node.waiting.watch(deletion.partition, self)

    def moved(self) -> None:
        """One of the partitions has moved, or is led by another."""
        for deletion in self._waiting[:]:
            if self._is_over(deletion):
                self._end(deletion)
        if not self._waiting:
            self._timer.cancel()
            self._done()

    def _is_over(self, deletion: _Deletion) -> bool:
        partition, row = deletion.partition, deletion.row
        if not partition.is_leader or partition.leader_epoch != deletion.leader_epoch:
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            row.low_watermark = _NO_LOW_WATERMARK
            return True
        row.low_watermark = _low_watermark(self._node, partition)
        return row.low_watermark >= deletion.offset

    def _end(self, deletion: _Deletion) -> None:
        self._waiting.remove(deletion)
        if all(each.partition is not deletion.partition for each in self._waiting):
            self._node.waiting.unwatch(deletion.partition, self)

    def _time_is_up(self) -> None:
        for deletion in self._waiting[:]:
            deletion.row.error_code = ErrorCode.REQUEST_TIMED_OUT
            self._end(deletion)
        self._done()


def _low_watermark(node: Node, partition: Partition) -> int:
    return partition.state.low_watermark(partition.log_start_offset, node.in_sync_sets.is_alive)


def _delete(
    node: Node, topic: str, asked: DeleteRecordsPartition
) -> tuple[DeleteRecordsPartitionResult, _Deletion | None]:
    """Delete on the leader; the second is what still has to be waited for."""
    try:
        partition = hosted_partition(node, topic, asked.partition_index)
        if is_internal(topic):
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Cannot delete records of the internal topic {topic}",
            )
        offset = partition.high_watermark if asked.offset == -1 else asked.offset
        partition.delete_records(offset)
    except ApiError as error:
        return _error_row(asked, error), None
    row = DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=_low_watermark(node, partition)
    )
    if row.low_watermark >= offset:
        return row, None
    return row, _Deletion(partition, partition.leader_epoch, offset, row)


def _error_row(asked: DeleteRecordsPartition, error: ApiError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index,
        low_watermark=_NO_LOW_WATERMARK,
        error_code=error.code,
    )
