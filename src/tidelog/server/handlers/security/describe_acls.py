"""DescribeAcls: without an authorizer there are none, and Kafka says so with an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DESCRIBE_ACLS
VERSIONS = (1, 3)
REQUEST = DescribeAclsRequest


def handle(node: Node, request: Request, body: DescribeAclsRequest) -> DescribeAclsResponse:
    raise ApiError(ErrorCode.SECURITY_DISABLED, "No authorizer is configured on the broker")


def error_response(body: DescribeAclsRequest, error: ApiError) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error.code, error_message=error.message)
