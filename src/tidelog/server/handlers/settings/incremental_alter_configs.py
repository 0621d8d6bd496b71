"""IncrementalAlterConfigs: single settings are set, deleted, appended to or subtracted from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.config_changes import ConfigChange, ConfigOperation
from tidelog.cluster.metadata.image import ConfigResource, ConfigResourceType
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation
from tidelog.server.broker_loggers import check_level_change
from tidelog.server.decisions import answer_when_committed
from tidelog.server.handlers.settings.config_needs import config_needs

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Deferred, Request

API = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS = (0, 1)
REQUEST = IncrementalAlterConfigsRequest
NEEDS = config_needs(AclOperation.ALTER_CONFIGS)


def handle(
    node: Node, request: Request, body: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Deferred:
    rows = []
    changes = []
    for each in body.resources:
        resource = _resource(each)
        try:
            if each.resource_type == ConfigResourceType.BROKER_LOGGER:
                _alter_loggers(node, each, validate_only=body.validate_only)
                rows.append(_row(resource, None))
            else:
                changes.append(ConfigChange(resource, _operations(each)))
        except ApiError as error:
            rows.append(_row(resource, error))
    decision = node.controller.incremental_alter_configs(
        changes, node.metadata.latest, validate_only=body.validate_only
    )
    rows += [_row(row.resource, row.error) for row in decision.rows]
    response = IncrementalAlterConfigsResponse(responses=rows)
    return answer_when_committed(node, request, decision.records, lambda: response)


def error_response(
    body: IncrementalAlterConfigsRequest, error: ApiError
) -> IncrementalAlterConfigsResponse:
    resources = dict.fromkeys(_resource(each) for each in body.resources)
    return IncrementalAlterConfigsResponse(
        responses=[_row(resource, error) for resource in resources]
    )


def _resource(resource: AlterConfigsResource) -> ConfigResource:
    return ConfigResource(resource.resource_type, resource.resource_name)


def _operations(resource: AlterConfigsResource) -> list[ConfigOperation]:
    return [
        ConfigOperation(config.name, config.config_operation, config.value)
        for config in resource.configs
    ]


def _alter_loggers(node: Node, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    """Log levels belong to the running process, not to the metadata."""
    if resource.resource_name != str(node.config.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id {resource.resource_name}: this is {node.config.node_id}",
        )
    levels = [
        check_level_change(config.name, config.config_operation, config.value)
        for config in resource.configs
    ]
    if levels and not validate_only:
        node.log.level = levels[-1]


def _row(resource: ConfigResource, error: ApiError | None) -> AlterConfigsResourceResponse:
    row = AlterConfigsResourceResponse(resource_type=resource.type, resource_name=resource.name)
    if error is not None:
        row.error_code = error.code
        row.error_message = error.message
    return row
