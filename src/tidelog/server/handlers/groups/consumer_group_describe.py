"""ConsumerGroupDescribe: epochs, members and assignments of groups of the consumer protocol."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinator.shard import CoordinatorResult
from tidelog.promise import Promise, gather
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.authorized_operations import GROUP_OPERATIONS
from tidelog.server.coordination.group_coordinator import check_consumer_protocol
from tidelog.server.needs import Need, Refusal, Unnamed

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS = (0, 1)
REQUEST = ConsumerGroupDescribeRequest


def _group_ids(body: ConsumerGroupDescribeRequest, version: int) -> Iterable[str]:
    return body.group_ids


NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.GROUP, _group_ids, Refusal.ROW),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, Unnamed.IN_ANSWER, Refusal.ROW),
)


def handle(
    node: Node, request: Request, body: ConsumerGroupDescribeRequest
) -> Promise[ConsumerGroupDescribeResponse]:
    check_consumer_protocol(node)

    def describe(group_id: str) -> Promise[DescribedGroup]:
        described = node.groups.submit(
            group_id,
            lambda shard, now_ms: CoordinatorResult(response=shard.describe_consumer(group_id)),
        )
        if body.include_authorized_operations:
            described = described.then(_with_operations)
        return described.recover(ApiError, partial(_error_row, group_id))

    return gather([describe(each) for each in body.group_ids]).then(
        lambda rows: ConsumerGroupDescribeResponse(groups=rows)
    )


def error_response(
    body: ConsumerGroupDescribeRequest, error: ApiError
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[_error_row(each, error) for each in body.group_ids]
    )


def _with_operations(described: DescribedGroup) -> DescribedGroup:
    described.authorized_operations = GROUP_OPERATIONS
    return described


def _error_row(group_id: str, error: ApiError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error.code)
