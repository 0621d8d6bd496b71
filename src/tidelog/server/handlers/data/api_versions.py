"""ApiVersions: what this node serves, made from what the handlers declared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.API_VERSIONS
VERSIONS = (0, 4)
REQUEST = ApiVersionsRequest
NEEDS = ()  # it is how clients find out what else there is
SERVES_BEFORE_NODE = True

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: Node, request: Request, body: ApiVersionsRequest | None) -> ApiVersionsResponse:
    """A body of None is a request of a version that is not served: answered in version 0."""
    if body is None:
        return _response(node, 0, ErrorCode.UNSUPPORTED_VERSION)
    if request.version >= 3:
        name, version = body.client_software_name, body.client_software_version
        if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version)):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{name!r} {version!r} is no client software name and version",
            )
        request.connection.client_software_name = name
        request.connection.client_software_version = version
    return _response(node, request.version, ErrorCode.NONE)


def error_response(body: ApiVersionsRequest | None, error: ApiError) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error.code)


def _response(node: Node, version: int, code: ErrorCode) -> ApiVersionsResponse:
    image = node.image
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersion(
                api_key=handler.api,
                min_version=handler.min_version,
                max_version=handler.max_version,
            )
            for _, handler in sorted(node.handlers.items())
            if handler.is_offered(node)
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.minimum, max_version=levels.maximum)
            for name, levels in node.config.supported_features.items()
            # Clients of older versions take a minimum of 0 for an error.
            if levels.minimum > 0 or version >= 4
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.features.items()
        ],
    )
