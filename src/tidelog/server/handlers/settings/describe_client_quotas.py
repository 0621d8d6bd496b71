"""DescribeClientQuotas: the quotas of the entities that match every component of a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.quota_changes import QuotaFilter, find_client_quotas
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from tidelog.protocol.errors import ApiError
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DESCRIBE_CLIENT_QUOTAS
VERSIONS = (0, 1)
REQUEST = DescribeClientQuotasRequest
NEEDS = (Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    filters = [
        QuotaFilter(each.entity_type, each.match_type, each.match) for each in body.components
    ]
    found = find_client_quotas(filters, node.image, strict=body.strict)
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=type, entity_name=name) for type, name in entity],
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, quotas in found.items()
        ]
    )


def error_response(
    body: DescribeClientQuotasRequest, error: ApiError
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        error_code=error.code, error_message=error.message, entries=None
    )
