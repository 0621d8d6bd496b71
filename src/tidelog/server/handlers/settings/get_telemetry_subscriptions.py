"""GetTelemetrySubscriptions: which metrics a client shall push, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import ConfigResourceType
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from tidelog.protocol.errors import ApiError
from tidelog.server.client_metrics import (
    ACCEPTED_COMPRESSION_TYPES,
    ClientTraits,
)

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
VERSIONS = (0, 0)
REQUEST = GetTelemetrySubscriptionsRequest
NEEDS = ()  # a client tells of itself


def is_offered(node: Node) -> bool:
    """Clients that see the API call it, so it is offered when somebody wants their metrics."""
    return any(
        resource.type == ConfigResourceType.CLIENT_METRICS for resource in node.image.configs
    )


def handle(
    node: Node, request: Request, body: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    instance_id, instance = node.client_metrics.subscribe(
        body.client_instance_id, client_traits(request), node.image.configs, node.now_ms()
    )
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED_COMPRESSION_TYPES],
        push_interval_ms=instance.push_interval_ms,
        telemetry_max_bytes=node.client_metrics.bytes_max,
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )


def error_response(
    body: GetTelemetrySubscriptionsRequest, error: ApiError
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        error_code=error.code, client_instance_id=body.client_instance_id
    )


def client_traits(request: Request) -> ClientTraits:
    """What is known of the client that sent a request."""
    connection = request.connection
    return ClientTraits(
        client_id=request.client_id or "",
        client_software_name=connection.client_software_name,
        client_software_version=connection.client_software_version,
        client_source_address=connection.peer_host,
        client_source_port=str(connection.peer_port),
    )
