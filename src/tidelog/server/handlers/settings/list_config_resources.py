"""ListConfigResources: the resources that have, or can have, settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import ConfigResourceType, MetadataImage
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.LIST_CONFIG_RESOURCES
VERSIONS = (0, 1)
REQUEST = ListConfigResourcesRequest
NEEDS = (Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    if request.version == 0:
        asked = [ConfigResourceType.CLIENT_METRICS]
    else:
        asked = _types(body.resource_types)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=type)
            for type in asked
            for name in _names(node.image, type)
        ]
    )


def error_response(
    body: ListConfigResourcesRequest, error: ApiError
) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=error.code)


def _types(numbers: list[int]) -> list[ConfigResourceType]:
    """None asked for means all."""
    if not numbers:
        return list(ConfigResourceType)
    try:
        return [ConfigResourceType(number) for number in dict.fromkeys(numbers)]
    except ValueError as error:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None


def _names(image: MetadataImage, type: ConfigResourceType) -> list[str]:
    if type is ConfigResourceType.TOPIC:
        return sorted(image.topics_by_name)
    if type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    return sorted(resource.name for resource in image.configs if resource.type == type)
