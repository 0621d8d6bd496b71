"""UnregisterBroker: forget a broker that is gone for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.broker_registrations import unregister_broker
from tidelog.cluster.controller.decision import Decision
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.controller.controller import Controller
    from tidelog.server.controller.request_context import RequestContext
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.UNREGISTER_BROKER
VERSIONS = (0, 0)
REQUEST = UnregisterBrokerRequest
ON_CONTROLLER = True
NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: UnregisterBrokerRequest
) -> Promise[UnregisterBrokerResponse]:
    return node.controller.forward(request, body)


def decide(
    controller: Controller, context: RequestContext | None, body: UnregisterBrokerRequest
) -> Decision[UnregisterBrokerResponse]:
    if body.broker_id == controller.settings.node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {body.broker_id} is the one that answers: stop it before it is unregistered.",
        )
    decision = unregister_broker(body.broker_id, controller.latest, controller.settings)
    controller.heartbeats.remove(body.broker_id)
    return decision.answering(UnregisterBrokerResponse())


def error_response(body: UnregisterBrokerRequest, error: ApiError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
