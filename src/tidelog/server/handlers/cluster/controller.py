"""What nodes ask of the controller: the requests of brokers, and those that they forward.

Only the active controller answers; another node's says NOT_CONTROLLER, and the one who asks looks
for the right one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tidelog.protocol.apis.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidelog.protocol.apis.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from tidelog.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.protocol.apis.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tidelog.protocol.apis.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from tidelog.protocol.apis.envelope import EnvelopeRequest, EnvelopeResponse
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.controller.envelope import unwrap, wrap_response
from tidelog.server.handler import Handler
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.promise import Promise
    from tidelog.protocol.schema import Message
    from tidelog.server.node import Node
    from tidelog.server.request import Request

_NEEDS = (Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, cluster),)


def _ask(node: Node, request: Request, body: Message) -> Promise[Any]:
    return node.controller.ask_here(body)


def _heartbeat(node: Node, request: Request, body: BrokerHeartbeatRequest) -> Promise[Any]:
    """The connection stands for the broker: when it closes, the controller looks after it."""
    request.connection.on_closed = partial(
        node.broker_connection_closed, body.broker_id, body.broker_epoch
    )
    return node.controller.ask_here(body)


def _open_envelope(node: Node, request: Request, body: EnvelopeRequest) -> Promise[Any]:
    try:
        inner, context = unwrap(body, request.received_ms)
    except ProtocolError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    handler = node.handlers.get(inner.API_KEY)
    if handler is None or handler.error_response is None:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"API {inner.API_KEY} is not forwarded")
    respond = handler.error_response

    def answered(response: Message) -> EnvelopeResponse:
        return wrap_response(body, response)

    def refused(error: ApiError) -> EnvelopeResponse:
        if error.code is ErrorCode.NOT_CONTROLLER:
            return EnvelopeResponse(error_code=error.code)
        return wrap_response(body, respond(inner, error))

    return node.controller.ask_here(inner, context).then(answered).recover(ApiError, refused)


def _handler(
    api: ApiKey,
    request_class: type[Message],
    response_class: Callable[..., Message],
    handle: Callable[[Node, Request, Any], Promise[Any]] = _ask,
) -> Handler:
    return Handler.between_nodes(
        api,
        request_class,
        handle,
        lambda body, error: response_class(error_code=error.code),
        _NEEDS,
    )


HANDLERS = (
    _handler(ApiKey.BROKER_REGISTRATION, BrokerRegistrationRequest, BrokerRegistrationResponse),
    _handler(ApiKey.BROKER_HEARTBEAT, BrokerHeartbeatRequest, BrokerHeartbeatResponse, _heartbeat),
    _handler(ApiKey.ALTER_PARTITION, AlterPartitionRequest, AlterPartitionResponse),
    _handler(ApiKey.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest, AllocateProducerIdsResponse),
    _handler(
        ApiKey.ASSIGN_REPLICAS_TO_DIRS, AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
    ),
    _handler(
        ApiKey.CONTROLLER_REGISTRATION,
        ControllerRegistrationRequest,
        ControllerRegistrationResponse,
    ),
    _handler(ApiKey.ENVELOPE, EnvelopeRequest, EnvelopeResponse, _open_envelope),
)
