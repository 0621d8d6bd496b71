"""FindCoordinator: which node to ask about a group or a transactional id.

The internal topic is made by the first who asks; the answer waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.coordination.internal_topics import ensure_internal_topic, partition_for
from tidelog.server.needs import Need, Refusal

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.FIND_COORDINATOR
VERSIONS = (0, 6)
REQUEST = FindCoordinatorRequest

_BATCHED_FROM = 4
_KEY_TYPE_GROUP = 0
_KEY_TYPE_TRANSACTION = 1
_TOPICS = {
    _KEY_TYPE_GROUP: CONSUMER_OFFSETS_TOPIC,
    _KEY_TYPE_TRANSACTION: TRANSACTION_STATE_TOPIC,
}
_NOBODY = -1


def _groups(body: FindCoordinatorRequest, version: int) -> Iterable[str]:
    return _keys(body, version) if body.key_type == _KEY_TYPE_GROUP else ()


def _transactional_ids(body: FindCoordinatorRequest, version: int) -> Iterable[str]:
    return _keys(body, version) if body.key_type == _KEY_TYPE_TRANSACTION else ()


def _keys(body: FindCoordinatorRequest, version: int) -> list[str]:
    return body.coordinator_keys if version >= _BATCHED_FROM else [body.key]


NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.GROUP, _groups, Refusal.ROW),
    Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, _transactional_ids, Refusal.ROW),
)


def handle(
    node: Node, request: Request, body: FindCoordinatorRequest
) -> Promise[FindCoordinatorResponse]:
    topic = _TOPICS.get(body.key_type)
    if topic is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"there are no coordinators of the type {body.key_type}"
        )
    keys = _keys(body, request.version)
    return ensure_internal_topic(node, topic).then(
        lambda _: _response([_find(node, request, topic, key, body.key_type) for key in keys])
    )


def error_response(body: FindCoordinatorRequest, error: ApiError) -> FindCoordinatorResponse:
    keys = body.coordinator_keys or [body.key]
    return _response([_error_row(key, error) for key in keys])


def _find(node: Node, request: Request, topic: str, key: str, key_type: int) -> Coordinator:
    if not key and key_type == _KEY_TYPE_TRANSACTION:
        return _error_row(key, ApiError(ErrorCode.INVALID_REQUEST, "an empty transactional id"))
    image = node.image
    partitions = image.topics_by_name[topic].partitions
    leader = partitions[partition_for(key, len(partitions))].leader
    broker = image.brokers.get(leader)
    endpoint = None if broker is None else broker.endpoint(request.connection.listener.name)
    if broker is None or broker.fenced or endpoint is None:
        return _error_row(key, ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return Coordinator(key=key, node_id=leader, host=endpoint.host, port=endpoint.port)


def _error_row(key: str, error: ApiError) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=_NOBODY,
        port=_NOBODY,
        error_code=error.code,
        error_message=error.message or None,
    )


def _response(rows: list[Coordinator]) -> FindCoordinatorResponse:
    """One answer for all versions: old ones read the first row from the top level."""
    if not rows:
        return FindCoordinatorResponse()
    first = rows[0]
    return FindCoordinatorResponse(
        error_code=first.error_code,
        error_message=first.error_message,
        node_id=first.node_id,
        host=first.host,
        port=first.port,
        coordinators=rows,
    )
