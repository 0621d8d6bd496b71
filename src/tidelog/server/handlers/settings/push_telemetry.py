"""PushTelemetry: a client's metrics arrive; they are checked and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from tidelog.protocol.errors import ApiError
from tidelog.server.handlers.settings.get_telemetry_subscriptions import client_traits, is_offered

__all__ = ["API", "NEEDS", "REQUEST", "VERSIONS", "error_response", "handle", "is_offered"]

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.PUSH_TELEMETRY
VERSIONS = (0, 0)
REQUEST = PushTelemetryRequest
NEEDS = ()  # a client tells of itself


def handle(node: Node, request: Request, body: PushTelemetryRequest) -> PushTelemetryResponse:
    node.client_metrics.push(
        body.client_instance_id,
        client_traits(request),
        node.image.configs,
        node.now_ms(),
        subscription_id=body.subscription_id,
        terminating=body.terminating,
        compression_type=body.compression_type,
        metrics=body.metrics,
    )
    return PushTelemetryResponse()


def error_response(body: PushTelemetryRequest, error: ApiError) -> PushTelemetryResponse:
    return PushTelemetryResponse(error_code=error.code)
