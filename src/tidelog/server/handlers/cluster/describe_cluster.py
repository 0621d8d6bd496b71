"""DescribeCluster: the brokers, the controller and the id of the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from tidelog.server.needs import Need, Refusal, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DESCRIBE_CLUSTER
VERSIONS = (0, 2)
REQUEST = DescribeClusterRequest

_BROKERS = 1
_CONTROLLERS = 2


def _cluster_if_asked(body: DescribeClusterRequest, version: int) -> Iterable[str]:
    return cluster(body, version) if body.include_cluster_authorized_operations else ()


NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER, _cluster_if_asked, Refusal.OMISSION),)


def handle(node: Node, request: Request, body: DescribeClusterRequest) -> DescribeClusterResponse:
    if body.endpoint_type == _CONTROLLERS:
        raise ApiError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to a broker, but a controller was asked for",
        )
    if body.endpoint_type != _BROKERS:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {body.endpoint_type}"
        )
    brokers = []
    for broker in node.image.brokers.values():
        endpoint = broker.endpoint(request.connection.listener.name)
        if endpoint is not None and (body.include_fenced_brokers or not broker.fenced):
            brokers.append(
                DescribeClusterBroker(
                    broker_id=broker.broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                    is_fenced=broker.fenced,
                )
            )
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.config.node_id,
        brokers=brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


def error_response(body: DescribeClusterRequest, error: ApiError) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=error.code, error_message=error.message)
