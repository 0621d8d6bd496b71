"""IncrementalAlterConfigs: single settings are set, deleted, appended to or subtracted from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.config_changes import (
    ConfigChange,
    ConfigOperation,
    incremental_alter_configs,
)
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.metadata.image import ConfigResource, ConfigResourceType
from tidelog.promise import Promise
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
from tidelog.server.handlers.settings.config_needs import config_needs

if TYPE_CHECKING:
    from tidelog.server.controller.controller import Controller
    from tidelog.server.controller.request_context import RequestContext
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS = (0, 1)
REQUEST = IncrementalAlterConfigsRequest
ON_CONTROLLER = True
NEEDS = config_needs(AclOperation.ALTER_CONFIGS)


def handle(
    node: Node, request: Request, body: IncrementalAlterConfigsRequest
) -> Promise[IncrementalAlterConfigsResponse]:
    """Log levels belong to the running process; all other settings are the controller's."""
    rows = []
    others = []
    for each in body.resources:
        if each.resource_type != ConfigResourceType.BROKER_LOGGER:
            others.append(each)
            continue
        try:
            _alter_loggers(node, each, validate_only=body.validate_only)
            rows.append(_row(_resource(each), None))
        except ApiError as error:
            rows.append(_row(_resource(each), error))
    if not others:
        return Promise.of(IncrementalAlterConfigsResponse(responses=rows))
    asked = IncrementalAlterConfigsRequest(resources=others, validate_only=body.validate_only)

    def with_loggers(response: IncrementalAlterConfigsResponse) -> IncrementalAlterConfigsResponse:
        response.responses = [*rows, *response.responses]
        return response

    answer: Promise[IncrementalAlterConfigsResponse] = node.controller.forward(request, asked)
    return answer.recover(ApiError, lambda error: error_response(asked, error)).then(with_loggers)


def decide(
    controller: Controller, context: RequestContext | None, body: IncrementalAlterConfigsRequest
) -> Decision[IncrementalAlterConfigsResponse]:
    decision = incremental_alter_configs(
        [ConfigChange(_resource(each), _operations(each)) for each in body.resources],
        controller.latest,
        controller.settings,
        validate_only=body.validate_only,
    )
    rows = [_row(row.resource, row.error) for row in decision.rows]
    return Decision(decision.records, IncrementalAlterConfigsResponse(responses=rows))


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
