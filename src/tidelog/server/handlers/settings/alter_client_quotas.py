"""AlterClientQuotas: set and remove quotas, one row for each entity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decision import Decision
from tidelog.cluster.controller.quota_changes import QuotaAlteration, alter_client_quotas
from tidelog.promise import Promise
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryResult,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.controller.controller import Controller
    from tidelog.server.controller.request_context import RequestContext
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.ALTER_CLIENT_QUOTAS
VERSIONS = (0, 1)
REQUEST = AlterClientQuotasRequest
ON_CONTROLLER = True
NEEDS = (Need(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: AlterClientQuotasRequest
) -> Promise[AlterClientQuotasResponse]:
    return node.controller.forward(request, body)


def decide(
    controller: Controller, context: RequestContext | None, body: AlterClientQuotasRequest
) -> Decision[AlterClientQuotasResponse]:
    decision = alter_client_quotas(
        [
            QuotaAlteration(
                [(part.entity_type, part.entity_name) for part in entry.entity],
                [(op.key, None if op.remove else op.value) for op in entry.ops],
            )
            for entry in body.entries
        ],
        controller.latest,
        validate_only=body.validate_only,
    )
    response = AlterClientQuotasResponse(
        entries=[
            _row(
                [EntityData(entity_type=type, entity_name=name) for type, name in row.entity],
                row.error,
            )
            for row in decision.rows
        ]
    )
    return Decision(decision.records, response)


def error_response(body: AlterClientQuotasRequest, error: ApiError) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[_row(entry.entity, error) for entry in body.entries])


def _row(entity: list[EntityData], error: ApiError | None) -> EntryResult:
    if error is None:
        return EntryResult(entity=entity)
    return EntryResult(entity=entity, error_code=error.code, error_message=error.message)
