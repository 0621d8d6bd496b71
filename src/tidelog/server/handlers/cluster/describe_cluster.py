"""DescribeCluster: the brokers, or the controllers, and the id of the cluster."""

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
ON_CONTROLLER = True

_BROKERS = 1
_CONTROLLERS = 2


def _cluster_if_asked(body: DescribeClusterRequest, version: int) -> Iterable[str]:
    return cluster(body, version) if body.include_cluster_authorized_operations else ()


NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER, _cluster_if_asked, Refusal.OMISSION),)


def handle(node: Node, request: Request, body: DescribeClusterRequest) -> DescribeClusterResponse:
    if body.endpoint_type not in (_BROKERS, _CONTROLLERS):
        raise ApiError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {body.endpoint_type}"
        )
    is_controller = request.connection.listener.is_controller
    if is_controller and body.endpoint_type == _BROKERS:
        raise ApiError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to a controller, but a broker was asked for",
        )
    if not is_controller and body.endpoint_type == _CONTROLLERS:
        raise ApiError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to a broker, but a controller was asked for",
        )
    listener = request.connection.listener.name
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        endpoint_type=body.endpoint_type,
        controller_id=node.metadata.leader_id if is_controller else node.config.node_id,
        brokers=_voters(node, listener) if is_controller else _brokers(node, listener, body),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


def _brokers(
    node: Node, listener: str, body: DescribeClusterRequest
) -> list[DescribeClusterBroker]:
    brokers = []
    for broker in node.image.brokers.values():
        endpoint = broker.endpoint(listener)
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
    return brokers


def _voters(node: Node, listener: str) -> list[DescribeClusterBroker]:
    """The controllers that vote, where they listen for each other."""
    rows = []
    for voter in node.metadata.quorum.voters:
        named = [endpoint for endpoint in voter.endpoints if endpoint.name == listener]
        for endpoint in (named or voter.endpoints)[:1]:
            rows.append(
                DescribeClusterBroker(
                    broker_id=voter.key.id, host=endpoint.host, port=endpoint.port
                )
            )
    return rows


def error_response(body: DescribeClusterRequest, error: ApiError) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=error.code, error_message=error.message)
