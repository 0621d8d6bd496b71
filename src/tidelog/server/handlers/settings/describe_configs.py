"""DescribeConfigs: every setting of a resource with its value and where the value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import ConfigResource, ConfigResourceType
from tidelog.cluster.settings.config_description import (
    ConfigEntry,
    ConfigSource,
    describe_client_metrics_config,
    describe_cluster_config,
    describe_group_config,
    describe_topic_config,
)
from tidelog.cluster.settings.config_schema import ConfigType
from tidelog.cluster.topic_names import validate_topic_name
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation
from tidelog.server.broker_loggers import logger_levels
from tidelog.server.configuration.config_layers import broker_config_layers, describe_node_config
from tidelog.server.handlers.settings.config_needs import config_needs

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DESCRIBE_CONFIGS
VERSIONS = (1, 4)
REQUEST = DescribeConfigsRequest
ON_CONTROLLER = True
NEEDS = config_needs(AclOperation.DESCRIBE_CONFIGS)


def handle(node: Node, request: Request, body: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_resource_row(node, resource, body) for resource in body.resources]
    )


def error_response(body: DescribeConfigsRequest, error: ApiError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_error_row(resource, error) for resource in body.resources]
    )


def _resource_row(
    node: Node, resource: DescribeConfigsResource, body: DescribeConfigsRequest
) -> DescribeConfigsResult:
    try:
        entries = _entries(node, resource)
    except ApiError as error:
        return _error_row(resource, error)
    asked = resource.configuration_keys
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_config_row(entry, body) for entry in entries if not asked or entry.name in asked],
    )


def _error_row(resource: DescribeConfigsResource, error: ApiError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=error.code,
        error_message=error.message,
    )


def _entries(node: Node, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    image, name = node.image, resource.resource_name
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            validate_topic_name(name)
            if name not in image.topics_by_name:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic named {name}."
                )
            return describe_topic_config(image.topic_configs(name), broker_config_layers(node))
        case ConfigResourceType.BROKER:
            if not name:
                return describe_cluster_config(image)
            _check_broker_id(node, name)
            return describe_node_config(node)
        case ConfigResourceType.BROKER_LOGGER:
            _check_broker_id(node, name)
            return _logger_entries(node)
        case ConfigResourceType.CLIENT_METRICS:
            return _client_metrics_entries(node, name)
        case ConfigResourceType.GROUP:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return describe_group_config(image.group_configs(name), broker_config_layers(node))
    raise ApiError(
        ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
    )


def _check_broker_id(node: Node, name: str) -> None:
    if name != str(node.config.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node.config.node_id}, but received {name}",
        )


def _logger_entries(node: Node) -> list[ConfigEntry]:
    return [
        ConfigEntry(
            name=name,
            value=level,
            source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            type=ConfigType.STRING,
            documentation="The least important lines that the node writes.",
            read_only=False,
            sensitive=False,
        )
        for name, level in logger_levels(node.log).items()
    ]


def _client_metrics_entries(node: Node, name: str) -> list[ConfigEntry]:
    if not name:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
        )
    resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, name)
    return describe_client_metrics_config(node.image.configs.get(resource, {}))


def _config_row(entry: ConfigEntry, body: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    row = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=entry.type,
    )
    if body.include_synonyms:
        row.synonyms = [
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in entry.synonyms
        ]
    if body.include_documentation:
        row.documentation = entry.documentation
    return row
