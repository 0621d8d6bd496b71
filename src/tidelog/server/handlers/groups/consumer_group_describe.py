"""ConsumerGroupDescribe: epochs, members and assignments of groups of the consumer protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.coordinator.shard import Outcome
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.server.authorized_operations import GROUP_OPERATIONS
from tidelog.server.coordination.group_coordinator import check_consumer_protocol
from tidelog.server.gathering import gather

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS = (0, 1)
REQUEST = ConsumerGroupDescribeRequest


def handle(
    node: Node, request: Request, body: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | Deferred:
    check_consumer_protocol(node)

    def ask(group_id: str, done: Callable[[DescribedGroup], None]) -> None:
        def answered(described: DescribedGroup | None, error: ApiError | None) -> None:
            if error is not None or described is None:
                code = ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error.code
                described = DescribedGroup(group_id=group_id, error_code=code)
            elif body.include_authorized_operations:
                described.authorized_operations = GROUP_OPERATIONS
            done(described)

        node.groups.submit(
            group_id,
            lambda shard, now_ms: Outcome(response=shard.describe_consumer(group_id)),
            answered,
        )

    return gather(
        request, body.group_ids, ask, lambda rows: ConsumerGroupDescribeResponse(groups=rows)
    )


def error_response(
    body: ConsumerGroupDescribeRequest, error: ApiError
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(group_id=each, error_code=error.code) for each in body.group_ids]
    )
