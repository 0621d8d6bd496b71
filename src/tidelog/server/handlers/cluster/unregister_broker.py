"""UnregisterBroker: forget a broker that is gone for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.decisions import answer_when_committed
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.UNREGISTER_BROKER
VERSIONS = (0, 0)
REQUEST = UnregisterBrokerRequest
NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: UnregisterBrokerRequest
) -> UnregisterBrokerResponse | Deferred:
    if body.broker_id == node.config.node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {body.broker_id} is the one that answers: stop it before it is unregistered.",
        )
    decision = node.controller.unregister_broker(body.broker_id, node.metadata.latest)
    return answer_when_committed(node, request, decision.records, UnregisterBrokerResponse)


def error_response(body: UnregisterBrokerRequest, error: ApiError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
