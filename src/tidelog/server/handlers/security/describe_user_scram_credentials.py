"""DescribeUserScramCredentials: which mechanisms users have. Secrets never leave the node."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import MetadataImage
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.security.acl import AclOperation, ResourceType
from tidelog.server.needs import Need, cluster

if TYPE_CHECKING:
    from tidelog.server.node import Node
    from tidelog.server.request import Request

API = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
VERSIONS = (0, 0)
REQUEST = DescribeUserScramCredentialsRequest
NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER, cluster),)


def handle(
    node: Node, request: Request, body: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Without users in the request: all of them."""
    image = node.image
    if body.users:
        asked = Counter(user.name for user in body.users)
    else:
        asked = Counter({user for user, _ in image.scram})
    return DescribeUserScramCredentialsResponse(
        results=[_user_row(image, user, times) for user, times in sorted(asked.items())]
    )


def error_response(
    body: DescribeUserScramCredentialsRequest, error: ApiError
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=error.message)


def _user_row(image: MetadataImage, user: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"The user {user} is named {times} times in one request",
        )
    credentials = [
        CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        for (owner, mechanism), credential in sorted(image.scram.items(), key=lambda item: item[0])
        if owner == user
    ]
    if not credentials:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"The user {user} has no SCRAM credential",
        )
    return DescribeUserScramCredentialsResult(user=user, credential_infos=credentials)
