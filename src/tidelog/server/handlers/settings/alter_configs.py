"""AlterConfigs: the settings of a resource are replaced as a whole; what is not named goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.config_changes import ConfigReplacement, alter_configs
from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.metadata.image import ConfigResource, ConfigResourceType
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation
from tidelog.server.handlers.settings.config_needs import config_needs

if TYPE_CHECKING:
    from tidelog.server.controller.controller import Controller
    from tidelog.server.controller.request_context import RequestContext
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.ALTER_CONFIGS
VERSIONS = (0, 2)
REQUEST = AlterConfigsRequest
ON_CONTROLLER = True
NEEDS = config_needs(AclOperation.ALTER_CONFIGS)


def handle(
    node: Node, request: Request, body: AlterConfigsRequest
) -> Promise[AlterConfigsResponse]:
    return node.controller.forward(request, body)


def decide(
    controller: Controller, context: RequestContext | None, body: AlterConfigsRequest
) -> Decision[AlterConfigsResponse]:
    rows = []
    replacements = []
    for each in body.resources:
        resource = _resource(each)
        try:
            replacements.append(ConfigReplacement(resource, _configs(each)))
        except ApiError as error:
            rows.append(_row(resource, error))
    decision = alter_configs(
        replacements, controller.latest, controller.settings, validate_only=body.validate_only
    )
    rows += [_row(row.resource, row.error) for row in decision.rows]
    response = AlterConfigsResponse(responses=rows)
    return Decision(decision.records, response)


def error_response(body: AlterConfigsRequest, error: ApiError) -> AlterConfigsResponse:
    resources = dict.fromkeys(_resource(each) for each in body.resources)
    return AlterConfigsResponse(responses=[_row(resource, error) for resource in resources])


def _resource(resource: AlterConfigsResource) -> ConfigResource:
    return ConfigResource(resource.resource_type, resource.resource_name)


def _configs(resource: AlterConfigsResource) -> dict[str, str | None]:
    if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "Log levels are altered by IncrementalAlterConfigs only."
        )
    configs = {each.name: each.value for each in resource.configs}
    if len(configs) < len(resource.configs):
        raise ApiError(ErrorCode.INVALID_REQUEST, "A setting is given more than once.")
    return configs


def _row(resource: ConfigResource, error: ApiError | None) -> AlterConfigsResourceResponse:
    row = AlterConfigsResourceResponse(resource_type=resource.type, resource_name=resource.name)
    if error is not None:
        row.error_code = error.code
        row.error_message = error.message
    return row
